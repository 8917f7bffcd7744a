//! The shapes of instance types, as DescribeInstanceTypes has them.
//!
//! A part of a GPU (`g6f`) counts as 0 GPUs there: `logicalGpuCount` says how many there are to see, `gpuPartitionSize` how much of a GPU
//! each of them is, `memoryInfo` the memory of the part (EC2 API reference, "GpuDeviceInfo").
//!
//! Never: a part that is taken for a whole GPU. Where EC2 does not say how large it is, nothing is said of it.

use super::{Pages, Unknown, parts};
use crate::wire::{Client, filter, within};
use aws_sdk_ec2::types::{GpuInfo, InstanceTypeInfo, NetworkInfo, UsageClassType};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Types of one page: the most that EC2 gives.
const PAGE: i32 = 100;

/// What an instance type is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shape {
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Main memory in MiB.
    pub mem_mib: u64,
    /// Its GPUs. `None`: EC2 names none, or does not say how much of one there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Gpus>,
    /// How many Elastic Fabric Adapters it takes, one a network card. 0: none.
    pub efa: u32,
    /// Whether it is sold as spot.
    pub spot: bool,
}

/// The GPUs of an instance type, all alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gpus {
    /// How many there are to see on an instance.
    pub count: u32,
    /// Memory of each, or of the part that there is, in MiB.
    pub mem_mib: u32,
    /// EC2's name for the model, in lower case: `l4`.
    pub model: String,
    /// How much of a GPU each is, in thousandths: 1000 for whole ones.
    pub milli: u16,
}

/// The shapes of these types; those that the region does not have are absent.
///
/// # Errors
/// Why they are not known.
pub async fn shapes(client: &Client, types: &BTreeSet<String>) -> Result<BTreeMap<String, Shape>, Unknown> {
    let mut found = BTreeMap::new();
    for names in parts(types) {
        let mut pages = Pages::default();
        loop {
            let call = client.describe_instance_types().filters(filter("instance-type", names.iter().cloned()));
            let page = within(call.max_results(PAGE).set_next_token(pages.from()).send()).await?;
            found.extend(page.instance_types().iter().filter_map(shape));
            if !pages.turn(page.next_token())? {
                break;
            }
        }
    }
    Ok(found)
}

/// One without a name, vCPUs or memory is none.
fn shape(of: &InstanceTypeInfo) -> Option<(String, Shape)> {
    let shape = Shape {
        vcpus: positive(of.v_cpu_info()?.default_v_cpus())?,
        mem_mib: of.memory_info()?.size_in_mib().and_then(|mib| u64::try_from(mib).ok()).filter(|mib| *mib > 0)?,
        gpus: of.gpu_info().and_then(gpus),
        efa: of.network_info().map_or(0, efa),
        spot: of.supported_usage_classes().contains(&UsageClassType::Spot),
    };
    Some((of.instance_type()?.as_str().to_owned(), shape))
}

/// One, where EC2 says that there is some and not how many.
fn efa(info: &NetworkInfo) -> u32 {
    if info.efa_supported() != Some(true) {
        return 0;
    }
    info.efa_info().and_then(|efa| positive(efa.maximum_efa_interfaces())).unwrap_or(1)
}

/// `None` where there is not one sort of GPU with a count, a memory and a size.
fn gpus(info: &GpuInfo) -> Option<Gpus> {
    let [device] = info.gpus() else { return None };
    let whole = positive(device.count());
    let milli = match (device.gpu_partition_size(), whole) {
        (Some(size), _) => thousandths(size)?,
        (None, Some(_)) => 1000,
        (None, None) => return None,
    };
    let count = positive(device.logical_gpu_count()).or(whole)?;
    let each = positive(device.memory_info()?.size_in_mib())?;
    // Of a part it is the part's; in case it were the whole GPU's, all that the instance has says so.
    let share = positive(info.total_gpu_memory_in_mib()).map_or(each, |all| all / count);
    Some(Gpus { count, mem_mib: each.min(share), model: device.name()?.to_lowercase(), milli })
}

fn positive(number: Option<i32>) -> Option<u32> {
    number.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0)
}

/// A size above 0 and up to 1, rounded down: what asks for more than there is must not fit.
fn thousandths(size: f64) -> Option<u16> {
    // 0.29 is a little less than 29/100 in binary; a millionth makes up for it.
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
    fn parts_of_a_gpu_are_told_from_whole_ones() {
        let is = |count, mem_mib, milli| Some(Gpus { count, mem_mib, model: "l4".to_owned(), milli });
        for (what, said, read) in [
            ("whole", info(Some(4), Some(4), Some(1.0), 22_888, 91_552), is(4, 22_888, 1000)),
            ("as older answers have it", info(Some(4), None, None, 22_888, 91_552), is(4, 22_888, 1000)),
            ("an eighth", info(Some(0), Some(1), Some(0.125), 2_861, 2_861), is(1, 2_861, 125)),
            (
                "an eighth, of which only the total is said",
                info(Some(0), Some(1), Some(0.125), 22_888, 2_861),
                is(1, 2_861, 125),
            ),
            ("a third is rounded down", info(Some(0), Some(1), Some(1.0 / 3.0), 7_629, 7_629), is(1, 7_629, 333)),
            ("0.29 is not", info(Some(0), Some(1), Some(0.29), 6_637, 6_637), is(1, 6_637, 290)),
            ("a part without a size", info(Some(0), Some(1), None, 2_861, 2_861), None),
            ("as older answers have a part", info(Some(0), None, None, 2_861, 2_861), None),
            ("no size that can be", info(Some(1), Some(1), Some(1.5), 2_861, 2_861), None),
            ("nothing", info(Some(1), Some(1), Some(f64::NAN), 2_861, 2_861), None),
        ] {
            assert_eq!(gpus(&said), read, "{what}");
        }
        assert_eq!(gpus(&GpuInfo::builder().build()), None);
    }

    #[test]
    fn a_type_has_as_many_adapters_as_ec2_says_and_one_where_it_only_says_that_it_has_some() {
        for (supported, most, read) in [
            (Some(true), Some(32), 32),
            (Some(true), Some(1), 1),
            (Some(true), None, 1),
            (Some(false), Some(4), 0),
            (None, None, 0),
        ] {
            let some = most.map(|most| EfaInfo::builder().maximum_efa_interfaces(most).build());
            let info = NetworkInfo::builder().set_efa_supported(supported).set_efa_info(some).build();
            assert_eq!(efa(&info), read, "{supported:?} {most:?}");
        }
    }
}
