//! Changes with the permission for them, in the time that virt-handler waits.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::{timeout, timeout_at};

use super::error::LauncherError;
use super::libvirt_domain::{CHANGE_TIMEOUT, LibvirtDomain, within};
use super::vm::{Permission, Permit, Phase, Request, Vm};
use libvirt::ChangeableDomain;
use os::logging::chain;

const LOOK: &str = "the look at the domain";

/// Waits until libvirt has shown the domain, and then for the turn that the request may need.
/// `what` it does is for errors. None if there is nothing to do.
///
/// # Errors
/// The request is refused; [`LauncherError::Slow`] without a first look at the domain, and
/// [`LauncherError::Busy`] without the turn in time, or if libvirt does not tell in time how a
/// migration has ended.
pub(super) async fn permit_in_time(
    libvirt: &LibvirtDomain,
    request: Request,
    what: &'static str,
) -> Result<Option<Permit>, LauncherError> {
    match timeout(CHANGE_TIMEOUT, libvirt.vm.permit(request)).await {
        Ok(permission) => Ok(permission?.into_permit()?),
        Err(_) if libvirt.vm.snapshot().phase == Phase::Unknown => Err(LauncherError::Slow {
            what: LOOK,
            after: CHANGE_TIMEOUT,
        }),
        Err(_) => Err(LauncherError::Busy { what }),
    }
}

/// Makes the change that a request asks for. Returns the default if there is nothing to do.
///
/// # Errors
/// Those of [`permit_in_time`], and of `work`.
pub(super) async fn change<T: Default + Send + 'static>(
    libvirt: &LibvirtDomain,
    request: Request,
    what: &'static str,
    work: impl FnOnce(Option<ChangeableDomain>) -> Result<T, LauncherError> + Send + 'static,
) -> Result<T, LauncherError> {
    match permit_in_time(libvirt, request, what).await? {
        Some(permit) => libvirt.change(&permit, what, work).await,
        None => Ok(T::default()),
    }
}

/// Plugs CPUs or memory in or out. virt-handler asks once, so this goes on if the caller gives up,
/// and logs how it ends. `in_progress` is held until then.
///
/// # Errors
/// The request is refused; those of `work`. After [`CHANGE_TIMEOUT`] [`LauncherError::Slow`], or
/// [`LauncherError::Busy`] if an earlier call is still in progress.
pub(super) async fn resize(
    libvirt: &Arc<LibvirtDomain>,
    in_progress: &Arc<Mutex<()>>,
    what: &'static str,
    work: impl FnOnce(ChangeableDomain) -> Result<(), LauncherError> + Send + 'static,
) -> Result<(), LauncherError> {
    let end = os::time::deadline(CHANGE_TIMEOUT);
    let place = timeout_at(end, in_progress.clone().lock_owned()).await;
    let place = place.map_err(|_| LauncherError::Busy { what })?;
    let libvirt = libvirt.clone();
    let resize = tokio::spawn(async move {
        let _place = place;
        let work = |domain: Option<_>| work(domain.ok_or(LauncherError::NoDomain)?);
        let permission = libvirt.vm.permit(Request::Resize).await;
        let done = match permission.and_then(Permission::into_permit) {
            Ok(Some(permit)) => libvirt.change_in_any_time(&permit, what, work).await,
            Ok(None) => Ok(()),
            Err(refusal) => Err(refusal.into()),
        };
        match &done {
            Ok(()) => libvirt.vm.refresh(),
            Err(error) => tracing::error!(reason = %chain(error), "{what} has failed"),
        }
        done
    });
    let after = CHANGE_TIMEOUT;
    let done = timeout_at(end, resize).await;
    let done = done.map_err(|_| LauncherError::Slow { what, after })?;
    done.unwrap_or(Err(LauncherError::Worker { what }))
}

/// Waits until libvirt has shown the domain.
///
/// # Errors
/// [`LauncherError::Slow`].
pub(super) async fn look(vm: &Vm) -> Result<(), LauncherError> {
    within(LOOK, CHANGE_TIMEOUT, async {
        vm.wait_until_phase_is_certain().await;
        Ok(())
    })
    .await
}
