//! `spec.domain.memory` and `spec.domain.resources`.

use std::collections::BTreeMap;

use super::Quantity;
use crate::api;

api! {
/// `memory` of `DomainSpec`.
Memory {
    "hugepages" hugepages: Option<Hugepages>,
    "guest" guest: Option<Quantity>,
    "maxGuest" max_guest: Option<Quantity>,
    "reservedOverhead" reserved_overhead: Option<ReservedOverhead>,
}
/// `hugepages` of `Memory`.
Hugepages {
    "pageSize" page_size: String,
}
/// `reservedOverhead` of `Memory`.
ReservedOverhead {
    "addedOverhead" added_overhead: Option<Quantity>,
    "memLock" mem_lock: Option<String>,
}
/// `resources` of `DomainSpec`.
ResourceRequirements {
    "requests" requests: BTreeMap<String, Quantity>,
    "limits" limits: BTreeMap<String, Quantity>,
    "overcommitGuestOverhead" overcommit_guest_overhead: bool,
}
}
