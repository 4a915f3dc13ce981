//! The migration by which a domain arrives.

use std::mem::MaybeUninit;

use virt::sys;

use super::c;
use super::domain::DomainHandle;
use super::error::Error;

impl DomainHandle {
    /// Whether the domain's migration to this host is still in progress. The guest may run before
    /// that has ended.
    ///
    /// libvirt has statistics of a migration on its source only, and says so (`OPERATION_INVALID`)
    /// as long as the target's job lasts.
    pub fn is_migrating_in(&self) -> Result<bool, Error> {
        let mut info = MaybeUninit::<sys::virDomainJobInfo>::zeroed();
        // SAFETY: the domain and the place for the result are valid for the call.
        let asked = c::check(unsafe { sys::virDomainGetJobInfo(self.raw(), info.as_mut_ptr()) });
        match asked {
            Ok(_) => Ok(false),
            Err(error) if error.is_operation_invalid() => self.is_active(),
            Err(error) => Err(error),
        }
    }
}
