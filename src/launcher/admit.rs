//! Changes with the permission for them, in the time that virt-handler waits.

use tokio::time::timeout;

use super::error::LauncherError;
use super::libvirt_domain::{CHANGE_TIMEOUT, LibvirtDomain, within};
use super::vm::{Permit, Phase, Request, Vm};
use libvirt::ChangeableDomain;

const FIRST_READ: &str = "reading the domain for the first time";

/// Waits until libvirt has shown the domain, and then for the turn that the request may need.
/// `what` it does is for errors. None if there is nothing to do.
///
/// # Errors
/// The request is refused; [`LauncherError::Slow`] without a first look at the domain, and
/// [`LauncherError::Busy`] without the turn in time.
pub(super) async fn admit(
    vm: &Vm,
    request: Request,
    what: &'static str,
) -> Result<Option<Permit>, LauncherError> {
    match timeout(CHANGE_TIMEOUT, vm.permit(request)).await {
        Ok(permit) => Ok(permit?),
        Err(_) if vm.snapshot().phase == Phase::Unknown => Err(LauncherError::Slow {
            what: FIRST_READ,
            after: CHANGE_TIMEOUT,
        }),
        Err(_) => Err(LauncherError::Busy { what }),
    }
}

/// Makes the change that a request asks for, if there is something to do; else it is as `T` is by
/// default.
///
/// # Errors
/// Those of [`admit`], and of `work`.
pub(super) async fn change<T: Default + Send + 'static>(
    libvirt: &LibvirtDomain,
    vm: &Vm,
    request: Request,
    what: &'static str,
    work: impl FnOnce(Option<ChangeableDomain>) -> Result<T, LauncherError> + Send + 'static,
) -> Result<T, LauncherError> {
    match admit(vm, request, what).await? {
        Some(permit) => libvirt.change(&permit, what, work).await,
        None => Ok(T::default()),
    }
}

/// Waits until libvirt has shown the domain.
///
/// # Errors
/// [`LauncherError::Slow`].
pub(super) async fn first_read(vm: &Vm) -> Result<(), LauncherError> {
    within(FIRST_READ, CHANGE_TIMEOUT, async {
        vm.wait_for_first_read().await;
        Ok(())
    })
    .await
}
