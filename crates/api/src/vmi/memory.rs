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
    "reservedOverhead" reserved_overhead: ReservedOverhead,
}
/// `reservedOverhead` of `Memory`.
ReservedOverhead {
    "memLock" mem_lock: String,
}
/// `hugepages` of `Memory`.
Hugepages {
    "pageSize" page_size: String,
}
/// `resources` of `DomainSpec`.
ResourceRequirements {
    "requests" requests: BTreeMap<String, Quantity>,
    "limits" limits: BTreeMap<String, Quantity>,
}
}
