//! Given: the lines of a story that make its policy, and a job as `submit` words it.
//!
//! Never: a default that a story depends on without saying so, but those of `making`.

use crate::making::{self, DOLLAR};
use crate::words::{Words, number, time};
use alloc::collections::BTreeMap;
use forebay_kernel::catalog::CapacityType;
use forebay_kernel::ids::{PoolId, QuotaId, TierId};
use forebay_kernel::job::{Completion, Gang, JobSpec, Level, Service, TopologyConstraint, WorkerAsk};
use forebay_kernel::policy::{
    Budget, Buys, Ceiling, Drain, Floor, Layout, OnLinger, Period, Policy, PreemptWithin, QueueOrder, QueueRule,
    QuotaLimit, QuotaNode, Reclaim, Sharing, Slice, StartTarget, Tier, Undeclared, Watermarks, WhenImpossible,
    WhenLate, WhenSpent,
};
use forebay_kernel::units::{Mib, MilliCpu, MilliGpu, Rate, Span, Timestamp};

fn gpus(word: &str) -> MilliGpu {
    MilliGpu::whole(number(word))
}

fn ceiling(w: &mut Words) -> Ceiling {
    Ceiling {
        nodes: w.number("nodes"),
        on_demand_nodes: w.number("on-demand"),
        gpus: w.number("gpus"),
        spend: w.number("spend").map(|n: u64| Rate(n * DOLLAR)),
    }
}

fn buys(word: &str) -> Buys {
    match word {
        "on-demand" => Buys::OnDemand,
        "spot-then-on-demand" => Buys::SpotThenOnDemand,
        "spot" => Buys::Spot,
        "nothing" => Buys::Nothing,
        _ => panic!("`{word}` is nothing that a tier buys"),
    }
}

fn queue_rule(policy: &Policy, w: &mut Words) -> QueueRule {
    let tier = policy.tier_named(w.take("tier").unwrap_or("normal"));
    let pool = |name: &str| {
        let at = policy.pools.iter().position(|p| p.name == name);
        PoolId(at.expect("a pool told before") as u16)
    };
    let quota = w.take("quota").unwrap_or("all");
    let quota = policy.quotas.iter().position(|q| q.name == quota);
    let pools: Vec<PoolId> = w.list("pools").into_iter().map(pool).collect();
    QueueRule {
        quota: QuotaId(quota.expect("a quota told before") as u16),
        tier: tier.expect("a tier"),
        pools: if pools.is_empty() { vec![PoolId(0)] } else { pools },
        submitters: w.list("submitters").into_iter().map(String::from).collect(),
        start: w.time("within").map(|within| StartTarget {
            within: Span(within),
            when_late: match w.take("late") {
                None | Some("wait") => WhenLate::Wait,
                Some("buy-on-demand") => WhenLate::BuyOnDemand,
                Some("reject") => WhenLate::Reject,
                Some(word) => panic!("`{word}` is nothing to do when late"),
            },
        }),
        // tiers=own: as a policy that lists none
        tiers: match w.list("tiers")[..] {
            [] => Some((0..policy.tiers.len() as u16).map(TierId).collect()),
            ["own"] => None,
            ref names => Some(names.iter().map(|name| policy.tier_named(name).expect("a tier")).collect()),
        },
        reclaim: match w.take("reclaim") {
            None | Some("any") => Reclaim::Any,
            Some("lower-tiers") => Reclaim::LowerTiers,
            Some("never") => Reclaim::Never,
            Some(word) => panic!("`{word}` is nothing to take back"),
        },
        preempt_within: match w.take("preempt-within") {
            None | Some("lower-tiers") => PreemptWithin::LowerTiers,
            Some("lower-priority") => PreemptWithin::LowerPriority,
            Some("longer-expected") => PreemptWithin::LongerExpected,
            Some("never") => PreemptWithin::Never,
            Some(word) => panic!("`{word}` is nothing to stop in a queue"),
        },
        wait_per_gpu_hour: w.time("per-gpu-hour").map(Span),
        order: match w.take("order") {
            None | Some("arrival") => QueueOrder::Arrival,
            Some("shortest-expected") => QueueOrder::ShortestExpected,
            Some(word) => panic!("`{word}` is no order"),
        },
    }
}

/// `NODES@FROM-TO` with hours of the day, `/MON..SUN` bits as seven 0 or 1 (every day without), UTC: `2@9-18/1111100`.
fn floor(word: &str) -> Floor {
    let (nodes, when) = word.split_once('@').expect("NODES@FROM-TO");
    let (hours, days) = when.split_once('/').unwrap_or((when, "1111111"));
    let (from, to) = hours.split_once('-').expect("FROM-TO");
    let days = days.chars().zip(0..).filter(|(c, _)| *c == '1').map(|(_, at)| 1 << at).sum();
    Floor {
        nodes: number(nodes),
        days,
        from: number::<u16>(from) * 60,
        to: number::<u16>(to) * 60,
        offsets: Vec::new(),
    }
}

/// `6/hour`, `6/day/warn`: dollars, for what time, and what happens when they are spent.
fn budget(word: &str) -> Budget {
    let mut parts = word.split('/');
    let amount = number::<u64>(parts.next().unwrap_or_default()) * DOLLAR;
    let per = match parts.next() {
        Some("hour") => Period::Hour,
        Some("day") => Period::Day,
        Some("month") => Period::Month,
        other => panic!("{other:?} is no period of a budget"),
    };
    let when_spent = if parts.next() == Some("warn") { WhenSpent::Warn } else { WhenSpent::Hold };
    Budget { amount, per, when_spent }
}

/// Given: one line of the policy.
pub fn given(policy: &mut Policy, names: &mut Vec<String>, verb: &str, mut w: Words) {
    match verb {
        // offering NAME [on-demand] gpus= price= max= model= zone= boot= cpu= (cores) mem= (GiB) nvlink= numa= (GPUs a group)
        "offering" => {
            let capacity = match w.plain.get(1) {
                Some(&"on-demand") => CapacityType::OnDemand,
                Some(&"reserved") => CapacityType::Reserved,
                _ => CapacityType::Spot,
            };
            let gpus = w.number("gpus").unwrap_or(1);
            let price = w.number("price").unwrap_or(1);
            let mut offer = making::offering(w.at(0), capacity, gpus, price);
            offer.max_price = w.number("max").map_or(offer.price, |n: u64| Rate(n * DOLLAR));
            offer.models = w.take("model").map_or(offer.models, |m| vec![m.into()]);
            offer.zone = w.take("zone").map_or(offer.zone, String::from);
            offer.nvlink = w.number("nvlink").unwrap_or(0);
            offer.numa = w.number("numa").unwrap_or(0);
            offer.boot = w.time("boot").map_or(offer.boot, Span);
            offer.cpu = w.number("cpu").map_or(offer.cpu, |n: u64| MilliCpu(n * 1000));
            offer.mem = w.number("mem").map_or(offer.mem, |n: u64| Mib(n * 1024));
            names.push(w.at(0).into());
            policy.offerings.push(offer);
        }
        "limits" => policy.limits = ceiling(&mut w),
        // pool NAME [offerings=a,b] [nodes= on-demand= gpus= spend=] [keep=] [marks=LOW..HIGH] [floor=NODES@FROM-TO/DAYS] [drain=|auto] [slices= smallest=] [layouts=]
        "pool" => {
            let mut pool = making::pool(w.at(0), policy.offerings.len());
            let own = w.list("offerings");
            let at = |o: &&str| names.iter().position(|n| n == o).expect("an offering") as u32;
            if !own.is_empty() {
                pool.offerings = own.iter().map(at).collect();
            }
            pool.keep_ready = w.number("keep").unwrap_or(0);
            pool.watermarks = w.take("marks").map(|word| {
                let (low, high) = word.split_once("..").expect("marks=LOW..HIGH");
                Watermarks { low: number(low), high: number(high) }
            });
            pool.floors = w.take("floor").into_iter().map(floor).collect();
            pool.drain = match w.take("drain") {
                None => pool.drain,
                Some("auto") => Drain::Auto,
                Some(span) => Drain::After(Span(time(span))),
            };
            pool.sharing = w
                .number("slices")
                .map(|time_slices| Sharing { time_slices, smallest: w.number("smallest").unwrap_or(1) });
            pool.layouts = w.list("layouts").into_iter().map(layout).collect();
            pool.ceiling = ceiling(&mut w);
            policy.pools.push(pool);
        }
        // tier NAME [priority=] [buys=] [by=a,b] [min-run=] [longest=] [min-share=] (thousandths): a known one is changed
        "tier" => {
            let at = policy.tier_named(w.at(0)).map_or(policy.tiers.len(), TierId::index);
            if at == policy.tiers.len() {
                policy.tiers.push(Tier { name: w.at(0).into(), ..policy.tiers[1].clone() });
            }
            let by: Option<Vec<TierId>> =
                w.take("by").map(|names| names.split(',').filter_map(|n| policy.tier_named(n)).collect());
            let tier = &mut policy.tiers[at];
            tier.priority = w.number("priority").unwrap_or(tier.priority);
            tier.buys = w.take("buys").map_or(tier.buys, buys);
            tier.stoppable_by = by.unwrap_or_else(|| tier.stoppable_by.clone());
            tier.min_run = w.time("min-run").map_or(tier.min_run, Span);
            tier.max_run_while_others_wait = w.time("longest").map(Span);
            tier.min_share = w.number("min-share").unwrap_or(tier.min_share);
        }
        // fair [half-life=] [ageing=] [entry=]
        "fair" => {
            let rules = &mut policy.fairness;
            rules.half_life = w.time("half-life").map_or(rules.half_life, Span);
            rules.entry = w.time("entry").map_or(rules.entry, Span);
            rules.ageing = w.time("ageing").map(Span);
        }
        // quota NAME [under=] [weight=] (thousandths) [budget=AMOUNT/PER[/warn]] POOL=nominal[/borrow[/lend]], `-` for without bound
        "quota" => {
            let parent = w.take("under").map(|p| {
                let at = policy.quotas.iter().position(|q| q.name == p);
                QuotaId(at.expect("a quota told before") as u16)
            });
            let weight = w.number("weight").unwrap_or(1000);
            let budget = w.take("budget").map(budget);
            let mut limits = BTreeMap::new();
            for (pool, value) in w.rest() {
                let at = policy.pools.iter().position(|p| p.name == pool);
                let mut parts = value.split('/');
                let nominal = gpus(parts.next().unwrap_or_default());
                let bound = |word: Option<&str>, unstated| match word {
                    None => unstated,
                    Some("-") => None,
                    Some(n) => Some(gpus(n)),
                };
                let borrow = bound(parts.next(), Some(MilliGpu(0)));
                let lend = bound(parts.next(), None);
                let limit = QuotaLimit { nominal, borrow, lend };
                limits.insert(PoolId(at.expect("a pool told before") as u16), limit);
            }
            let node = QuotaNode { name: w.at(0).into(), parent, limits, weight, budget };
            match policy.quotas.iter_mut().find(|q| q.name == node.name) {
                Some(told_before) => *told_before = node,
                None => policy.quotas.push(node),
            }
        }
        // impossible hold|reject: what becomes of jobs that a new policy makes impossible
        "impossible" => {
            policy.impossible = match w.at(0) {
                "hold" => WhenImpossible::Hold,
                "reject" => WhenImpossible::Reject,
                word => panic!("`{word}` is nothing to do with the impossible"),
            };
        }
        // queue NAME [tier=] [tiers=own|a,b] (any) [quota=] [pools=] [submitters=] [within= late= per-gpu-hour=] [reclaim=] [preempt-within=]
        "queue" => {
            let rule = queue_rule(policy, &mut w);
            policy.queues.insert(w.at(0).into(), rule);
        }
        // undeclared at-most=N ...: they share one rule
        "undeclared" => {
            let at_most = w.number("at-most").expect("how many");
            let rule = queue_rule(policy, &mut w);
            policy.undeclared = Undeclared::Under { rule, at_most };
        }
        "lifecycle" => {
            let rules = &mut policy.lifecycle;
            let mut set = |key: &str, span: &mut Span| {
                *span = w.time(key).map_or(*span, Span);
            };
            set("linger-after", &mut rules.linger_after);
            set("max-run", &mut rules.max_run);
            set("boot-timeout", &mut rules.boot_timeout);
            set("start-timeout", &mut rules.start_timeout);
            set("hang-after", &mut rules.hang_after);
            set("scale-down-after", &mut rules.scale_down_after);
            set("protect", &mut rules.protect);
            // residency= (thousandths)
            rules.max_residency_over_compute = w.number("residency").or(rules.max_residency_over_compute);
            if w.take("on-linger") == Some("stop") {
                rules.on_linger = OnLinger::Stop;
            }
        }
        // consolidate [worth=] (thousandths) [every=] [hourly=] (thousandths)
        "consolidate" => {
            let rules = &mut policy.consolidation;
            rules.worth_it = w.number("worth").unwrap_or(2000);
            rules.every = w.time("every").map_or(rules.every, Span);
            rules.moves_per_hour = w.number("hourly").unwrap_or(rules.moves_per_hour);
        }
        _ => panic!("no line of a policy opens with `{verb}`"),
    }
    w.end();
}

/// `7x143:5`: seven slices of 143/1000 and 5 GiB; `400:20+600:20`: two different ones; `whole`: none.
pub fn layout(word: &str) -> Layout {
    let slices = word.split('+').filter(|w| *w != "whole").flat_map(|w| {
        let (count, slice) = w.split_once('x').unwrap_or(("1", w));
        let (share, mem) = slice.split_once(':').expect("SHARE:GIB");
        let slice = Slice { profile: slice.into(), share: number(share), mem: Mib(number::<u64>(mem) * 1024) };
        vec![slice; number(count)]
    });
    Layout { slices: slices.collect() }
}

/// `within=zone`: required; `near=zone`: preferred.
fn within(w: &mut Words) -> Option<TopologyConstraint> {
    let level = |name: &str| Level::named(name).unwrap_or_else(|| panic!("`{name}` is no level"));
    let required = w.take("within").map(|name| TopologyConstraint { level: level(name), required: true });
    let preferred = w.take("near").map(|name| TopologyConstraint { level: level(name), required: false });
    required.or(preferred)
}

/// `3x1`: three workers of one GPU; `2..4x1`: elastic; `2x0`: without GPUs.
fn gang(word: &str, each: WorkerAsk) -> Gang {
    let (count, gpus) = word.split_once('x').expect("workers=COUNTxGPUS");
    let (min, max) = count.split_once("..").unwrap_or((count, count));
    Gang::Workers { min: number(min), max: number(max), each: WorkerAsk { gpus: number(gpus), ..each } }
}

/// `1..3/4`: one to three replicas, four requests at once each.
fn service(word: &str) -> Service {
    let (count, target) = word.split_once('/').expect("service=MIN..MAX/TARGET");
    let (min, max) = count.split_once("..").expect("service=MIN..MAX/TARGET");
    Service { min: number(min), max: number(max), target: number(target), spread: None }
}

/// A job as `submit` words it.
pub fn job(w: &mut Words) -> JobSpec {
    let each = WorkerAsk {
        gpus: 0,
        share: w.number("share").unwrap_or(1000),
        gpu_mem: Mib(w.number::<u64>("gpu-mem").unwrap_or(0) * 1024),
        cpu: MilliCpu(w.number::<u64>("cpu").unwrap_or(0) * 1000),
        mem: Mib(w.number::<u64>("mem").unwrap_or(0) * 1024),
    };
    let spanning = w.number("spanning").map(|gpus| Gang::Spanning { gpus, per_gpu: each });
    let own = gang(w.take("workers").unwrap_or("1x1"), each);
    let mut spec = making::job(w.at(0), spanning.unwrap_or(own));
    spec.queue = w.take("queue").unwrap_or("normal").into();
    spec.tier = w.take("tier").map(String::from);
    spec.principal = w.take("by").unwrap_or("p").into();
    spec.priority = w.number("priority").unwrap_or(0);
    spec.models = w.list("models").into_iter().map(String::from).collect();
    spec.within = within(w);
    spec.spot = w.take("spot") != Some("no");
    spec.shares = w.take("shares") == Some("yes");
    spec.rerun = w.take("rerun") == Some("yes");
    spec.digest = w.number("digest").unwrap_or(1);
    spec.restart = Span(w.time("restart").unwrap_or(0));
    spec.max_run = w.time("max-run").map(Span);
    spec.batch = w.take("batch").map(String::from);
    spec.expected = w.time("expected").map(Span);
    spec.deadline = w.time("deadline").map(Timestamp);
    // saves=EVERY/GRACE
    spec.checkpoint = w.take("saves").and_then(|word| {
        let (every, grace) = word.split_once('/').expect("saves=EVERY/GRACE");
        making::saves(Span(time(every)), Span(time(grace)))
    });
    spec.retry.attempts = w.number("attempts").unwrap_or(3);
    spec.retry.backoff = w.time("backoff").map_or(spec.retry.backoff, Span);
    spec.retry.start_failures = w.number("start-failures");
    spec.retry.never = w.list("never").into_iter().map(number).collect();
    // service=MIN..MAX/TARGET
    spec.service = w.take("service").map(service);
    // sent=TIME: by its sender's clock
    spec.sent = w.time("sent").map(Timestamp);
    spec.completion = match w.take("completion") {
        Some("leader") => Completion::Leader,
        Some("any") => Completion::Any,
        _ => Completion::All,
    };
    spec
}
