//! libvirt's lists of named values.

use std::ffi::{CStr, c_int};
use std::ptr;

use virt::sys;

use super::c;
use super::error::Error;

/// A value of a list. libvirt's six types of numbers are four here.
#[derive(Debug, Clone, PartialEq)]
pub enum ParamValue {
    /// A text.
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
}

impl TypedParams {
    /// An empty list, for [`Self::places`].
    pub fn new() -> Self {
        Self {
            list: ptr::null_mut(),
            len: 0,
        }
    }

    /// Where a call of libvirt's puts its list, and how many values it has.
    pub fn places(&mut self) -> (*mut sys::virTypedParameterPtr, *mut c_int) {
        (&mut self.list, &mut self.len)
    }

    /// A list with these texts.
    pub fn of_texts(texts: &[(&CStr, &CStr)]) -> Result<Self, Error> {
        let mut params = Self::new();
        let mut room = 0;
        for (name, text) in texts {
            let (list, len) = params.places();
            // SAFETY: the three places are this list's, and the strings are valid for the call, which copies them.
            c::check(unsafe {
                sys::virTypedParamsAddString(list, len, &raw mut room, name.as_ptr(), text.as_ptr())
            })?;
        }
        Ok(params)
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
    // SAFETY: libvirt says by the type which member of the union it has written; a name and a text end with NUL.
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
