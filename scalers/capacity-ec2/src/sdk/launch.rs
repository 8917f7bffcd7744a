//! Converts a purchase into the parameters of `CreateFleet` with one override, or of `RunInstances`.

use super::Client;
use crate::request::LaunchRequest;
use aws_sdk_ec2::operation::create_fleet::builders::CreateFleetFluentBuilder;
use aws_sdk_ec2::operation::run_instances::builders::RunInstancesFluentBuilder;
use aws_sdk_ec2::types::{
    CapacityReservationSpecification, CapacityReservationTarget, DefaultTargetCapacityType,
    FleetLaunchTemplateConfigRequest, FleetLaunchTemplateOverridesRequest, FleetLaunchTemplateSpecificationRequest,
    FleetType, IamInstanceProfileSpecification, InstanceMarketOptionsRequest, InstanceNetworkInterfaceSpecification,
    InstanceType, LaunchTemplateSpecification, MarketType, OnDemandOptionsRequest, Placement, ResourceType,
    SpotInstanceType, SpotMarketOptions, SpotOptionsRequest, Tag, TagSpecification, TargetCapacitySpecificationRequest,
};
use aws_smithy_types::base64;
use forebay_kernel::catalog::CapacityType;

pub(super) fn fleet_call(client: &Client, request: &LaunchRequest) -> CreateFleetFluentBuilder {
    let mut template = FleetLaunchTemplateSpecificationRequest::builder();
    template = match request.template.as_deref() {
        Some(id) if id.starts_with("lt-") => template.launch_template_id(id),
        name => template.launch_template_name(name.unwrap_or_default()),
    };
    template = template.version(request.version.as_deref().unwrap_or("$Default"));
    // The zone is in every override, so that it is in the errors too.
    let mut overrides = FleetLaunchTemplateOverridesRequest::builder()
        .instance_type(InstanceType::from(request.instance_type.as_str()))
        .set_max_price(request.max_price.clone())
        .set_image_id(request.image.clone());
    overrides = match &request.subnet {
        Some(subnet) => overrides.subnet_id(subnet),
        None => overrides.availability_zone(&request.zone),
    };
    if let Some(group) = &request.group {
        overrides = overrides.placement(Placement::builder().group_name(group).build());
    }
    let config = FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(template.build())
        .overrides(overrides.build())
        .build();
    let count = signed(request.count);
    let gang = (request.at_least > 1).then(|| signed(request.at_least));
    let single = gang.map(|_| true);
    let spot = request.capacity == CapacityType::Spot;
    let target = TargetCapacitySpecificationRequest::builder()
        .total_target_capacity(count)
        .default_target_capacity_type(if spot {
            DefaultTargetCapacityType::Spot
        } else {
            DefaultTargetCapacityType::OnDemand
        })
        .build();
    let mut call = client
        .create_fleet()
        .r#type(FleetType::Instant)
        .client_token(&request.token)
        .launch_template_configs(config)
        .target_capacity_specification(target)
        .tag_specifications(tags(ResourceType::Instance, request))
        .tag_specifications(tags(ResourceType::Fleet, request));
    if spot {
        let options = SpotOptionsRequest::builder()
            .set_min_target_capacity(gang)
            .set_single_instance_type(single)
            .set_single_availability_zone(single);
        call = call.spot_options(options.build());
    } else {
        let options = OnDemandOptionsRequest::builder()
            .set_min_target_capacity(gang)
            .set_single_instance_type(single)
            .set_single_availability_zone(single);
        call = call.on_demand_options(options.build());
    }
    call
}

pub(super) fn run_call(client: &Client, request: &LaunchRequest) -> RunInstancesFluentBuilder {
    let mut call = client
        .run_instances()
        .client_token(&request.token)
        .instance_type(InstanceType::from(request.instance_type.as_str()))
        .min_count(signed(request.at_least))
        .max_count(signed(request.count))
        .set_image_id(request.image.clone())
        .set_user_data(request.user_data.as_ref().map(base64::encode))
        .tag_specifications(tags(ResourceType::Instance, request))
        .tag_specifications(tags(ResourceType::Volume, request));
    if let Some(template) = &request.template {
        let version = request.version.as_deref().unwrap_or("$Default");
        let launch_template = LaunchTemplateSpecification::builder().version(version);
        let launch_template = if template.starts_with("lt-") {
            launch_template.launch_template_id(template)
        } else {
            launch_template.launch_template_name(template)
        };
        call = call.launch_template(launch_template.build());
    }
    if let Some(name) = &request.instance_profile {
        call = call.iam_instance_profile(IamInstanceProfileSpecification::builder().name(name).build());
    }
    let mut placement = Placement::builder().availability_zone(&request.zone);
    if let Some(group) = &request.group {
        placement = placement.group_name(group);
    }
    call = call.placement(placement.build());
    if request.efa {
        // With network interfaces, EC2 takes the subnet and the security groups only from them.
        for card in 0..request.efa_cards.max(1) {
            call = call.network_interfaces(network_interface(request, card));
        }
    } else {
        call = call.set_subnet_id(request.subnet.clone());
        call = call.set_security_group_ids(groups(request));
    }
    if let Some(market) = market(request) {
        call = call.instance_market_options(market);
    }
    if let Some(reservation) = &request.reservation {
        let target = CapacityReservationTarget::builder().capacity_reservation_id(&reservation.id).build();
        let specification = CapacityReservationSpecification::builder().capacity_reservation_target(target);
        call = call.capacity_reservation_specification(specification.build());
    }
    call
}

/// The interface of a network card: the first device on the first card, and the second device on each other one (EC2 User
/// Guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards").
fn network_interface(request: &LaunchRequest, card: u32) -> InstanceNetworkInterfaceSpecification {
    InstanceNetworkInterfaceSpecification::builder()
        .device_index(i32::from(card > 0))
        // A single card has no index, so that repeated requests from before `efa_cards` stay the same.
        .set_network_card_index((request.efa_cards > 1).then(|| signed(card)))
        .interface_type("efa")
        .delete_on_termination(true)
        .set_subnet_id(request.subnet.clone())
        .set_groups(groups(request))
        .build()
}

fn groups(request: &LaunchRequest) -> Option<Vec<String>> {
    (!request.security_groups.is_empty()).then(|| request.security_groups.clone())
}

/// The market options. `None`: on demand.
fn market(request: &LaunchRequest) -> Option<InstanceMarketOptionsRequest> {
    if request.reservation.as_ref().is_some_and(|reservation| reservation.block) {
        return Some(InstanceMarketOptionsRequest::builder().market_type(MarketType::CapacityBlock).build());
    }
    if request.capacity != CapacityType::Spot {
        return None;
    }
    let spot = SpotMarketOptions::builder()
        .set_max_price(request.max_price.clone())
        .spot_instance_type(SpotInstanceType::OneTime)
        .build();
    Some(InstanceMarketOptionsRequest::builder().market_type(MarketType::Spot).spot_options(spot).build())
}

fn tags(resource: ResourceType, request: &LaunchRequest) -> TagSpecification {
    let tag = |(key, value): (&String, &String)| Tag::builder().key(key).value(value).build();
    TagSpecification::builder().resource_type(resource).set_tags(Some(request.tags.iter().map(tag).collect())).build()
}

fn signed(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::LaunchApi;
    use aws_sdk_ec2::config::{BehaviorVersion, Config};
    use std::collections::BTreeMap;

    fn request(efa_cards: u32) -> LaunchRequest {
        LaunchRequest {
            token: "journal-1-7".to_owned(),
            purchase: 3,
            decided_at_ms: 9,
            via: LaunchApi::Run,
            instance_type: "p5.48xlarge".to_owned(),
            zone: "us-east-1a".to_owned(),
            capacity: CapacityType::Spot,
            count: 4,
            at_least: 2,
            max_price: Some("12.500000".to_owned()),
            group: Some("forebay-lab-p-us-east-1a".to_owned()),
            efa: efa_cards > 0,
            efa_cards,
            reservation: None,
            other_reservations: Vec::new(),
            template: Some("gpu".to_owned()),
            version: None,
            image: Some("ami-1".to_owned()),
            subnet: Some("subnet-1".to_owned()),
            security_groups: vec!["sg-1".to_owned(), "sg-2".to_owned()],
            instance_profile: Some("nodes".to_owned()),
            user_data: Some("#!/bin/sh\n".to_owned()),
            tags: BTreeMap::from([("forebay:cluster".to_owned(), "lab".to_owned())]),
        }
    }

    /// Its calls are never sent.
    fn client() -> Client {
        Client::from_conf(Config::builder().behavior_version(BehaviorVersion::latest()).build())
    }

    #[test]
    fn run_instances_has_all_settings_of_a_request() {
        let call = run_call(&client(), &request(0));
        let input = call.as_input();
        let template = input.get_launch_template().as_ref().unwrap();
        assert_eq!((template.launch_template_name(), template.version()), (Some("gpu"), Some("$Default")));
        assert_eq!((input.get_min_count(), input.get_max_count()), (&Some(2), &Some(4)), "at least the gang's minimum");
        assert_eq!(input.get_image_id().as_deref(), Some("ami-1"));
        assert_eq!(input.get_user_data().as_deref(), Some("IyEvYmluL3NoCg=="));
        assert_eq!(input.get_iam_instance_profile().as_ref().unwrap().name(), Some("nodes"));
        assert_eq!(input.get_security_group_ids().as_deref(), Some(&["sg-1".to_owned(), "sg-2".to_owned()][..]));
        assert_eq!(input.get_subnet_id().as_deref(), Some("subnet-1"));
        let placement = input.get_placement().as_ref().unwrap();
        let expected = (Some("us-east-1a"), Some("forebay-lab-p-us-east-1a"));
        assert_eq!((placement.availability_zone(), placement.group_name()), expected);
        let market = input.get_instance_market_options().as_ref().unwrap();
        assert_eq!(market.spot_options().unwrap().max_price(), Some("12.500000"));
        let tagged = input.get_tag_specifications().as_ref().unwrap();
        let types: Vec<_> = tagged.iter().filter_map(|t| t.resource_type().cloned()).collect();
        assert_eq!(types, [ResourceType::Instance, ResourceType::Volume]);
        assert!(tagged.iter().all(|t| t.tags().len() == 1));
        assert_eq!(input.get_network_interfaces(), &None);
    }

    #[test]
    fn each_network_card_has_an_interface() {
        let call = run_call(&client(), &request(32));
        let input = call.as_input();
        assert_eq!((input.get_subnet_id(), input.get_security_group_ids()), (&None, &None), "the interfaces have them");
        let cards = input.get_network_interfaces().clone().unwrap();
        let indexes: Vec<_> = cards.iter().map(|c| (c.network_card_index(), c.device_index())).collect();
        assert_eq!(indexes[..2], [(Some(0), Some(0)), (Some(1), Some(1))]);
        assert_eq!((indexes.len(), indexes[31]), (32, (Some(31), Some(1))));
        for card in &cards {
            assert_eq!((card.interface_type(), card.delete_on_termination), (Some("efa"), Some(true)));
            assert_eq!((card.subnet_id(), card.groups().len()), (Some("subnet-1"), 2));
        }
    }

    #[test]
    fn a_request_without_a_number_of_cards_stays_the_same() {
        for request in [request(1), LaunchRequest { efa: true, ..request(0) }] {
            let call = run_call(&client(), &request);
            let cards = call.as_input().get_network_interfaces().clone().unwrap();
            let [card] = &cards[..] else { panic!("{cards:?}") };
            assert_eq!((card.network_card_index(), card.device_index()), (None, Some(0)));
        }
    }
}
