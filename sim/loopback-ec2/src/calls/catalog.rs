//! Instance types and prices: DescribeInstanceTypes and DescribeSpotPriceHistory. The price history has only the
//! present price of each (type, zone).

use forebay_catalog::PriceRow;
use forebay_kernel::units::Timestamp;

use super::filters::{Filters, Page};
use crate::fault::Ec2Fault;
use crate::params::{Params, dollars};
use crate::region::{Region, millis};
use crate::xml::Xml;

/// The product of the spot prices.
const PRODUCT: &str = "Linux/UNIX";

pub(super) fn types(region: &mut Region, params: &Params) -> Result<Xml, Ec2Fault> {
    let page = Page::read(params, 5, 100)?;
    let known = [
        "instance-type",
        "supported-usage-class",
        "processor-info.supported-architecture",
        "network-info.efa-supported",
    ];
    let filters = Filters::read(params, |name| known.contains(&name))?;
    let ids = params.list("InstanceType");
    let missing: Vec<&str> = ids.iter().copied().filter(|id| !region.types.contains_key(*id)).collect();
    if !missing.is_empty() {
        let message = format!("The following supplied instance types do not exist: [{}]", missing.join(", "));
        return Err(Ec2Fault::new(400, "InvalidInstanceType", message));
    }
    let named = region.types.values().filter(|row| ids.is_empty() || ids.contains(&row.instance_type.as_str()));
    let matched = named.filter(|row| {
        filters.take(|name| match name {
            "instance-type" => vec![row.instance_type.as_str()],
            "supported-usage-class" => usage_classes(row),
            "network-info.efa-supported" => vec![if efa_interfaces(&row.instance_type) > 0 { "true" } else { "false" }],
            _ => vec!["x86_64"],
        })
    });
    Ok(page.of("instanceTypeSet", matched, type_info))
}

fn type_info(xml: &mut Xml, row: &PriceRow) {
    let (vcpus, efa) = (row.cpu_milli / 1000, efa_interfaces(&row.instance_type));
    xml.leaf("instanceType", &row.instance_type);
    xml.leaf("currentGeneration", true);
    xml.texts("supportedUsageClasses", usage_classes(row));
    xml.leaf("bareMetal", row.instance_type.ends_with(".metal"));
    xml.element("processorInfo", |xml| xml.texts("supportedArchitectures", ["x86_64"]));
    xml.element("vCpuInfo", |xml| {
        xml.leaf("defaultVCpus", vcpus);
        xml.leaf("defaultCores", vcpus.div_ceil(2));
        xml.leaf("defaultThreadsPerCore", 2);
    });
    xml.element("memoryInfo", |xml| xml.leaf("sizeInMiB", row.mem_mib));
    xml.element("networkInfo", |xml| {
        xml.leaf("networkPerformance", "Up to 100 Gigabit");
        xml.leaf("maximumNetworkInterfaces", 15);
        xml.leaf("maximumNetworkCards", efa.max(1));
        xml.leaf("defaultNetworkCardIndex", 0);
        xml.list("networkCards", 0..efa.max(1), |xml, nth| {
            xml.leaf("networkCardIndex", nth);
            xml.leaf("maximumNetworkInterfaces", if nth == 0 { 15 } else { 2 });
        });
        xml.leaf("efaSupported", efa > 0);
        if efa > 0 {
            xml.element("efaInfo", |xml| xml.leaf("maximumEfaInterfaces", efa));
        }
    });
    if !row.gpu_model.is_empty() {
        gpu_info(xml, row);
    }
    xml.element("placementGroupInfo", |xml| xml.texts("supportedStrategies", ["cluster", "partition", "spread"]));
}

/// As in EC2, a part of a GPU counts as 0 GPUs, with a number of logical GPUs and their size.
fn gpu_info(xml: &mut Xml, row: &PriceRow) {
    let model = row.gpu_model.to_uppercase();
    xml.element("gpuInfo", |xml| {
        xml.list("gpus", [row], |xml, row| {
            // The catalog has a suffix for the memory size, which EC2's names do not have.
            xml.leaf("name", model.split('-').next().unwrap_or(&model));
            xml.leaf("manufacturer", "NVIDIA");
            xml.leaf("count", if row.is_fractional() { 0 } else { row.gpus });
            xml.leaf("logicalGpuCount", row.gpus);
            let milli = row.gpu_milli;
            xml.leaf("gpuPartitionSize", format_args!("{}.{:03}", milli / 1000, milli % 1000));
            xml.element("memoryInfo", |xml| xml.leaf("sizeInMiB", row.gpu_mem_mib));
        });
        xml.leaf("totalGpuMemoryInMiB", u64::from(row.gpu_mem_mib) * u64::from(row.gpus));
    });
}

fn usage_classes(row: &PriceRow) -> Vec<&'static str> {
    let blocks =
        ["p4d.", "p4de.", "p5.", "p5e.", "p5en.", "p6-"].iter().any(|family| row.instance_type.starts_with(family));
    if blocks { vec!["on-demand", "spot", "capacity-block"] } else { vec!["on-demand", "spot"] }
}

/// The number of EFA interfaces of a type, by EC2's documentation.
pub(super) fn efa_interfaces(instance_type: &str) -> u32 {
    let Some((family, size)) = instance_type.split_once('.') else { return 0 };
    let large = |most_small: u32| {
        let times = size.strip_suffix("xlarge").and_then(|n| n.parse::<u32>().ok());
        u32::from(size == "metal" || times.is_some_and(|n| n > most_small))
    };
    match family {
        "p4d" | "p4de" => 4,
        "p5" if size == "48xlarge" => 32,
        "p5e" => 32,
        "p5en" => 16,
        "p6-b200" => 8,
        "p5" | "p3dn" => 1,
        "g4dn" | "g5" | "g6" | "g6e" => large(4),
        "c6i" | "m6i" | "r6i" => large(24),
        "c7i" | "m7i" | "r7i" => large(24),
        _ => 0,
    }
}

pub(super) fn spot_prices(region: &mut Region, params: &Params) -> Result<Xml, Ec2Fault> {
    let page = Page::read(params, 1, 1000)?;
    let known = ["availability-zone", "instance-type", "product-description"];
    let filters = Filters::read(params, |name| known.contains(&name))?;
    let (types, products) = (params.list("InstanceType"), params.list("ProductDescription"));
    let zone = params.text("AvailabilityZone");
    let product = products.is_empty() || products.iter().any(|p| [PRODUCT, "Linux/UNIX (Amazon VPC)"].contains(p));
    let all = region.types.keys().flat_map(|t| region.options.zones.iter().map(move |z| (t.as_str(), z.as_str())));
    let matched = all.filter(|(t, z)| {
        let named = (types.is_empty() || types.contains(t)) && zone.is_none_or(|zone| zone == *z);
        let has = |name: &str| match name {
            "availability-zone" => vec![*z],
            "instance-type" => vec![*t],
            _ => vec![PRODUCT],
        };
        product && named && filters.take(has)
    });
    // The price has been valid since before now. The start of the minute is used.
    let since = Timestamp(region.now().0 - region.now().0 % 60_000);
    Ok(page.of("spotPriceHistorySet", matched, |xml, (instance_type, zone)| {
        xml.leaf("instanceType", instance_type);
        xml.leaf("productDescription", PRODUCT);
        xml.leaf("spotPrice", dollars(region.spot_price(instance_type, zone)));
        xml.leaf("timestamp", millis(since));
        xml.leaf("availabilityZone", zone);
        xml.leaf("availabilityZoneId", region.zone_id(zone));
    }))
}
