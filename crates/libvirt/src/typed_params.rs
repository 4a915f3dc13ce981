//! libvirt's lists of named values.

use std::ffi::{CStr, c_int};
use std::ptr;

use virt::sys;

use super::c;
use super::error::Error;

/// A value of a list. libvirt's six types of numbers are four here.
#[derive(Debug, Clone, PartialEq)]
pub enum ParamValue {
    Text(String),
    /// A number with a sign, or a boolean (0, 1).
    Signed(i64),
    /// A number without a sign.
    Unsigned(u64),
    /// A number with a fraction.
    Double(f64),
}

/// A list that libvirt allocates, freed with this object.
pub(super) struct TypedParams {
    list: sys::virTypedParameterPtr,
    len: c_int,
    /// How many values the list has memory for.
    capacity: c_int,
}

impl TypedParams {
    pub fn new() -> Self {
        Self {
            list: ptr::null_mut(),
            len: 0,
            capacity: 0,
        }
    }

    /// Where a call of libvirt's puts its list, and how many values it has.
    pub fn places(&mut self) -> (*mut sys::virTypedParameterPtr, *mut c_int) {
        (&mut self.list, &mut self.len)
    }

    /// A list with these texts.
    pub fn of_texts(texts: &[(&CStr, &CStr)]) -> Result<Self, Error> {
        let mut params = Self::new();
        for (name, text) in texts {
            params.add_c_text(name, text)?;
        }
        Ok(params)
    }

    pub fn add_text(&mut self, name: &CStr, text: &str) -> Result<(), Error> {
        let text = c::text(&name.to_string_lossy(), text)?;
        self.add_c_text(name, &text)
    }

    fn add_c_text(&mut self, name: &CStr, text: &CStr) -> Result<(), Error> {
        let (list, len, capacity) = (&mut self.list, &mut self.len, &mut self.capacity);
        // SAFETY: the three places are this list's, and the strings are valid for the call, which
        // copies them.
        c::check(unsafe {
            sys::virTypedParamsAddString(list, len, capacity, name.as_ptr(), text.as_ptr())
        })
        .map(drop)
    }

    /// Adds a number without a sign.
    pub fn add_unsigned(&mut self, name: &CStr, value: u64) -> Result<(), Error> {
        let (list, len, capacity) = (&mut self.list, &mut self.len, &mut self.capacity);
        // SAFETY: as above.
        c::check(unsafe { sys::virTypedParamsAddULLong(list, len, capacity, name.as_ptr(), value) })
            .map(drop)
    }

    /// Adds an `int`.
    pub fn add_int(&mut self, name: &CStr, value: c_int) -> Result<(), Error> {
        let (list, len, capacity) = (&mut self.list, &mut self.len, &mut self.capacity);
        // SAFETY: as above.
        c::check(unsafe { sys::virTypedParamsAddInt(list, len, capacity, name.as_ptr(), value) })
            .map(drop)
    }

    /// The list for a call that reads it, and how many values it has.
    pub fn as_raw(&self) -> (sys::virTypedParameterPtr, c_int) {
        (self.list, self.len)
    }

    /// All values with their names.
    pub fn read(&self) -> Vec<(String, ParamValue)> {
        let Ok(len) = usize::try_from(self.len) else {
            return Vec::new();
        };
        if self.list.is_null() {
            return Vec::new();
        }
        // SAFETY: libvirt has put `len` values there, which stay until this object is dropped.
        unsafe { read(self.list, len) }
    }
}

impl Drop for TypedParams {
    fn drop(&mut self) {
        // SAFETY: the list is libvirt's or null, which the function allows, and is freed once.
        unsafe { sys::virTypedParamsFree(self.list, self.len) };
    }
}

/// All values of a list with their names.
///
/// # Safety
/// `list` is a list of libvirt's that has `len` values.
pub(super) unsafe fn read(
    list: sys::virTypedParameterPtr,
    len: usize,
) -> Vec<(String, ParamValue)> {
    // SAFETY: the caller's promise.
    let params = unsafe { std::slice::from_raw_parts(list, len) };
    params.iter().filter_map(read_one).collect()
}

/// A value with its name; none of a type that this crate does not know.
fn read_one(param: &sys::virTypedParameter) -> Option<(String, ParamValue)> {
    let Ok(kind) = sys::virTypedParameterType::try_from(param.type_) else {
        return None;
    };
    // SAFETY: libvirt says by the type which member of the union it has written; a name and a text
    // end with NUL.
    let (name, value) = unsafe {
        let value = match kind {
            sys::VIR_TYPED_PARAM_INT => ParamValue::Signed(param.value.i.into()),
            sys::VIR_TYPED_PARAM_UINT => ParamValue::Unsigned(param.value.ui.into()),
            sys::VIR_TYPED_PARAM_LLONG => ParamValue::Signed(param.value.l),
            sys::VIR_TYPED_PARAM_ULLONG => ParamValue::Unsigned(param.value.ul),
            sys::VIR_TYPED_PARAM_DOUBLE => ParamValue::Double(param.value.d),
            sys::VIR_TYPED_PARAM_BOOLEAN => ParamValue::Signed((param.value.b != 0).into()),
            sys::VIR_TYPED_PARAM_STRING => ParamValue::Text(c::copy(param.value.s)),
            _ => return None,
        };
        (c::copy(param.field.as_ptr()), value)
    };
    Some((name, value))
}
