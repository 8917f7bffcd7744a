//! The resources of instance types, from DescribeInstanceTypes.
//!
//! EC2 counts a part of a GPU (`g6f`) as 0 GPUs: `logicalGpuCount` is the number of devices on the instance, `gpuPartitionSize` the part of a
//! GPU that each of them is, and `memoryInfo` the memory of the part (EC2 API reference, "GpuDeviceInfo"). A part is never taken for a whole
//! GPU: where EC2 gives no size, the type has no GPUs here.

use super::{LookupError, Pages, filter_values};
use crate::sdk::{Client, filter, send};
use aws_sdk_ec2::types::{GpuInfo, InstanceTypeInfo, NetworkInfo, UsageClassType};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Types per page, EC2's maximum.
const PAGE: i32 = 100;

/// The resources of an instance type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceShape {
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Main memory in MiB.
    pub mem_mib: u64,
    /// Its GPUs. `None`: it has none, or EC2 does not say which part of a GPU it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<InstanceGpus>,
    /// The number of Elastic Fabric Adapters, one for each network card.
    pub efa: u32,
    /// Whether it is available as spot.
    pub spot: bool,
}

/// The GPUs of an instance type, which are all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceGpus {
    /// The number of devices on an instance.
    pub count: u32,
    /// The memory of each device in MiB, for a partial GPU that of the part.
    pub mem_mib: u32,
    /// EC2's name of the model in lower case, such as `l4`.
    pub model: String,
    /// The size of each device in thousandths of a GPU: 1000 for a whole one.
    pub milli: u16,
}

/// The shapes of these types, by type. Types that the region does not have are left out.
///
/// # Errors
/// The shapes could not be read completely.
pub async fn instance_shapes(
    client: &Client,
    types: &BTreeSet<String>,
) -> Result<BTreeMap<String, InstanceShape>, LookupError> {
    let mut shapes = BTreeMap::new();
    for names in filter_values(types) {
        let mut pages = Pages::default();
        loop {
            let call = client.describe_instance_types().filters(filter("instance-type", names.iter().cloned()));
            let page = send(call.max_results(PAGE).set_next_token(pages.next_token()).send()).await?;
            shapes.extend(page.instance_types().iter().filter_map(shape));
            if !pages.advance(page.next_token())? {
                break;
            }
        }
    }
    Ok(shapes)
}

/// `None` for a type without a name, vCPUs or memory.
fn shape(of: &InstanceTypeInfo) -> Option<(String, InstanceShape)> {
    let shape = InstanceShape {
        vcpus: positive(of.v_cpu_info()?.default_v_cpus())?,
        mem_mib: of.memory_info()?.size_in_mib().and_then(|mib| u64::try_from(mib).ok()).filter(|mib| *mib > 0)?,
        gpus: of.gpu_info().and_then(gpus),
        efa: of.network_info().map_or(0, efa),
        spot: of.supported_usage_classes().contains(&UsageClassType::Spot),
    };
    Some((of.instance_type()?.as_str().to_owned(), shape))
}

/// The number of adapters: 1 where EC2 gives no number.
fn efa(info: &NetworkInfo) -> u32 {
    if info.efa_supported() != Some(true) {
        return 0;
    }
    info.efa_info().and_then(|efa| positive(efa.maximum_efa_interfaces())).unwrap_or(1)
}

/// `None` unless there is exactly one kind of GPU, with a count, a memory and a size.
fn gpus(info: &GpuInfo) -> Option<InstanceGpus> {
    let [device] = info.gpus() else { return None };
    let whole = positive(device.count());
    let milli = match (device.gpu_partition_size(), whole) {
        (Some(size), _) => thousandths(size)?,
        (None, Some(_)) => 1000,
        (None, None) => return None,
    };
    let count = positive(device.logical_gpu_count()).or(whole)?;
    let each = positive(device.memory_info()?.size_in_mib())?;
    // For a partial GPU this is the memory of the part. The total bounds it in case EC2 gives that of the whole GPU.
    let share = positive(info.total_gpu_memory_in_mib()).map_or(each, |all| all / count);
    Some(InstanceGpus { count, mem_mib: each.min(share), model: device.name()?.to_lowercase(), milli })
}

fn positive(number: Option<i32>) -> Option<u32> {
    number.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0)
}

/// Converts a size above 0 and up to 1, rounded down, so that no job gets more than there is.
fn thousandths(size: f64) -> Option<u16> {
    // In binary, 0.29 is slightly less than 29/100, which a millionth corrects.
    let milli = (size * 1000.0 + 0.001).floor();
    (1.0..=1000.0).contains(&milli).then_some(milli as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_ec2::types::{EfaInfo, GpuDeviceInfo, GpuDeviceMemoryInfo};

    fn info(count: Option<i32>, logical: Option<i32>, size: Option<f64>, mem: i32, total: i32) -> GpuInfo {
        let device = GpuDeviceInfo::builder()
            .name("L4")
            .set_count(count)
            .set_logical_gpu_count(logical)
            .set_gpu_partition_size(size)
            .memory_info(GpuDeviceMemoryInfo::builder().size_in_mib(mem).build());
        GpuInfo::builder().gpus(device.build()).total_gpu_memory_in_mib(total).build()
    }

    #[test]
    fn partial_gpus_are_distinguished_from_whole_ones() {
        let some = |count, mem_mib, milli| Some(InstanceGpus { count, mem_mib, model: "l4".to_owned(), milli });
        for (case, info, expected) in [
            ("whole", info(Some(4), Some(4), Some(1.0), 22_888, 91_552), some(4, 22_888, 1000)),
            ("whole, in older responses", info(Some(4), None, None, 22_888, 91_552), some(4, 22_888, 1000)),
            ("an eighth", info(Some(0), Some(1), Some(0.125), 2_861, 2_861), some(1, 2_861, 125)),
            (
                "an eighth, with the memory of the whole",
                info(Some(0), Some(1), Some(0.125), 22_888, 2_861),
                some(1, 2_861, 125),
            ),
            ("a third is rounded down", info(Some(0), Some(1), Some(1.0 / 3.0), 7_629, 7_629), some(1, 7_629, 333)),
            ("0.29 is exact", info(Some(0), Some(1), Some(0.29), 6_637, 6_637), some(1, 6_637, 290)),
            ("a part without a size", info(Some(0), Some(1), None, 2_861, 2_861), None),
            ("a part in older responses", info(Some(0), None, None, 2_861, 2_861), None),
            ("an impossible size", info(Some(1), Some(1), Some(1.5), 2_861, 2_861), None),
            ("not a number", info(Some(1), Some(1), Some(f64::NAN), 2_861, 2_861), None),
        ] {
            assert_eq!(gpus(&info), expected, "{case}");
        }
        assert_eq!(gpus(&GpuInfo::builder().build()), None);
    }

    #[test]
    fn the_number_of_adapters_is_one_where_ec2_gives_none() {
        for (supported, most, expected) in [
            (Some(true), Some(32), 32),
            (Some(true), Some(1), 1),
            (Some(true), None, 1),
            (Some(false), Some(4), 0),
            (None, None, 0),
        ] {
            let some = most.map(|most| EfaInfo::builder().maximum_efa_interfaces(most).build());
            let info = NetworkInfo::builder().set_efa_supported(supported).set_efa_info(some).build();
            assert_eq!(efa(&info), expected, "{supported:?} {most:?}");
        }
    }
}
