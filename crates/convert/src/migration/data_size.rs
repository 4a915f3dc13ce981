//! How much there is to transfer, from which virt-handler's time limit for a migration follows.

use api::vmi::{Quantity, Vmi};

use crate::ConvertError;

/// What KubeVirt's completion timeout counts by.
const GIGABYTE: i64 = 1_000_000_000;

/// The guest's memory, files of the pod that are copied (`ephemeral_bytes`), and volumes that move,
/// in decimal gigabytes rounded up.
///
/// # Errors
/// When the guest's memory is not a quantity.
pub fn data_size_gigabytes(vmi: &Vmi, ephemeral_bytes: u64) -> Result<i64, ConvertError> {
    let domain = &vmi.spec.domain;
    let guest = domain.memory.as_ref().and_then(|it| it.guest.as_ref());
    let memory = match (guest, domain.resources.requests.get("memory")) {
        (Some(guest), _) => bytes("spec.domain.memory.guest", guest)?,
        (None, Some(request)) => bytes("spec.domain.resources.requests.memory", request)?,
        (None, None) => 0,
    };
    let files = if vmi.status.migration_method == "BlockMigration" {
        i64::try_from(ephemeral_bytes).unwrap_or(i64::MAX)
    } else {
        0
    };
    let moved = vmi.status.migrated_volumes.iter();
    let claims = moved.filter_map(|volume| volume.source_pvc_info.as_ref());
    let volumes = claims
        .filter_map(|claim| claim.size().ok().flatten())
        .fold(0, i64::saturating_add);
    let total = memory.saturating_add(files).saturating_add(volumes);
    Ok(total / GIGABYTE + i64::from(total % GIGABYTE > 0))
}

fn bytes(field: &'static str, quantity: &Quantity) -> Result<i64, ConvertError> {
    quantity.value().map_err(ConvertError::of(field))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn size(memory: &Value, status: &Value, ephemeral: u64) -> i64 {
        let vmi = json!({"spec": {"domain": memory}, "status": status});
        data_size_gigabytes(&serde_json::from_value(vmi).unwrap(), ephemeral).unwrap()
    }

    #[test]
    fn gigabytes_are_decimal_and_rounded_up() {
        let none = json!({});
        let guest = |size: &str| json!({"memory": {"guest": size}});
        assert_eq!(size(&guest("1G"), &none, 0), 1);
        assert_eq!(size(&guest("1Gi"), &none, 0), 2);
        assert_eq!(size(&guest("1"), &none, 0), 1);
        assert_eq!(size(&none, &none, 0), 0);
        let requests =
            json!({"resources": {"requests": {"memory": "3G"}, "limits": {"memory": "9G"}}});
        assert_eq!(size(&requests, &none, 0), 3);
    }

    #[test]
    fn files_count_in_a_block_migration_and_volumes_that_move_always() {
        let guest = json!({"memory": {"guest": "1G"}});
        let block = json!({"migrationMethod": "BlockMigration"});
        assert_eq!(size(&guest, &json!({}), 5_000_000_000), 1);
        assert_eq!(size(&guest, &block, 5_000_000_000), 6);
        let claim = |capacity: &str, request: &str| json!({"capacity": {"storage": capacity}, "requests": {"storage": request}});
        let moved = json!({"migratedVolumes": [
            {"volumeName": "a", "sourcePVCInfo": claim("4G", "3G")},
            {"volumeName": "b", "sourcePVCInfo": {"capacity": {"storage": "9G"}}},
            {"volumeName": "c"},
        ]});
        assert_eq!(size(&guest, &moved, 5_000_000_000), 4);
    }
}
