//! Lists and watches: what is ours, and every node. A list is complete or it says nothing; a watch that has lost its place leads to a list.

use super::agenda::{PodKey, Task};
use super::calls::{PodScope, selector};
use super::gang::GangObject;
use super::owned::ForeignPods;
use super::{KubeMachine, KubeReport};
use crate::api_call::{KubeCall, KubeCallId, KubeObject, KubeResponse, Resource, WatchChange, WatchEvent};
use crate::kube_error::KubeErrorClass;
use crate::names::{ANNOTATION_BARRIER, BARRIER_OPEN};
use crate::objects::{ObjectMeta, version_of};
use crate::settings::KubeSettings;
use forebay_kernel::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// What is listed at the start.
pub(super) const LISTED: [Resource; 4] = [Resource::Nodes, Resource::Pods, Resource::Services, Resource::ConfigMaps];

/// What is listed beside it where objects are adopted.
pub(super) const ADOPTED: [Resource; 2] = [Resource::Jobs, Resource::JobSets];

/// All lists.
#[derive(Debug, Default)]
pub(super) struct Listings {
    by_resource: BTreeMap<Resource, Listing>,
    /// Those of gangs. Services and ConfigMaps are listed in each by itself: nothing says that we may see those of others.
    namespaces: Vec<String>,
    /// Which pods are listed.
    pods: PodScope,
    /// They were, since that is so.
    pods_listed: bool,
    /// Which pods the open list is of.
    list_of: PodScope,
}

#[derive(Debug, Default)]
struct Listing {
    /// The pages so far.
    objects: Vec<KubeObject>,
    continue_token: Option<String>,
    /// Which namespace is listed.
    namespace: usize,
    /// The objects are known up to here.
    resource_version: String,
    /// Whether it was complete once.
    listed: bool,
    watch: Option<KubeCallId>,
    /// Watches in a row that could not be opened.
    failures: u32,
    /// The namespaces, by their index, that have denied their last list. What is listed in all at once has one.
    denied: BTreeSet<usize>,
}

impl Listings {
    pub fn new(settings: &KubeSettings) -> Listings {
        let namespaces: BTreeSet<&String> = settings.namespaces.values().chain([&settings.namespace]).collect();
        Listings { namespaces: namespaces.into_iter().cloned().collect(), ..Listings::default() }
    }

    /// Whether all was listed since the start.
    pub fn complete(&self) -> bool {
        LISTED.iter().all(|resource| self.by_resource.get(resource).is_some_and(|listing| listing.listed))
    }

    /// Whether the pods of its scope are listed: not while all are listed again for another.
    pub fn knows_pods(&self) -> bool {
        self.pods_listed
    }

    fn of(&mut self, resource: Resource) -> &mut Listing {
        self.by_resource.entry(resource).or_default()
    }

    pub fn list_call(&mut self, resource: Resource, journal: &str) -> KubeCall {
        let pods = self.pods;
        if resource == Resource::Pods {
            self.list_of = pods;
        }
        let listing = self.of(resource);
        let (continue_token, at) = (listing.continue_token.clone(), listing.namespace);
        let namespace = if is_watched(resource) { None } else { self.namespaces.get(at).cloned() };
        KubeCall::List { resource, namespace, selector: selector(resource, journal, pods), continue_token }
    }

    /// `None`: there is a watch, or nothing to watch from.
    pub fn watch_call(&mut self, resource: Resource, journal: &str) -> Option<KubeCall> {
        let pods = self.pods;
        let listing = self.of(resource);
        if !listing.listed || listing.watch.is_some() {
            return None;
        }
        let resource_version = listing.resource_version.clone();
        Some(KubeCall::Watch { resource, selector: selector(resource, journal, pods), resource_version })
    }

    pub fn watching(&mut self, resource: Resource, call: KubeCallId) {
        self.of(resource).watch = Some(call);
    }

    fn watched_by(&self, call: KubeCallId) -> Option<Resource> {
        self.by_resource.iter().find(|(_, listing)| listing.watch == Some(call)).map(|(resource, _)| *resource)
    }

    /// The next list begins with its first page.
    pub fn restart(&mut self, resource: Resource) {
        let listing = self.of(resource);
        listing.objects.clear();
        listing.continue_token = None;
        listing.namespace = 0;
    }

    /// Takes note of whether the namespace that is listed denies that.
    pub fn note_response(&mut self, resource: Resource, response: &KubeResponse) {
        let listing = self.of(resource);
        match response {
            KubeResponse::Refused(error) if error.class == KubeErrorClass::Denied => {
                listing.denied.insert(listing.namespace);
            }
            _ => {
                listing.denied.remove(&listing.namespace);
            }
        }
    }

    /// Whether any list is denied.
    pub fn are_denied(&self) -> bool {
        self.by_resource.values().any(|listing| !listing.denied.is_empty())
    }

    /// Whether another namespace is to be listed, whose first page is next then.
    fn next_namespace(&mut self, resource: Resource) -> bool {
        let all = if is_watched(resource) { 1 } else { self.namespaces.len() };
        let listing = self.of(resource);
        listing.continue_token = None;
        listing.namespace = if listing.namespace + 1 < all { listing.namespace + 1 } else { 0 };
        listing.namespace > 0
    }
}

/// Pods and nodes are listed in all namespaces and watched from there: what others run on our nodes has to be seen.
fn is_watched(resource: Resource) -> bool {
    matches!(resource, Resource::Pods | Resource::Nodes) || may_fail(resource)
}

/// What gangs do not wait for.
fn may_fail(resource: Resource) -> bool {
    ADOPTED.contains(&resource) || resource == Resource::DaemonSets
}

/// The pods of a whole list.
pub(super) struct PodList {
    keys: BTreeSet<PodKey>,
    version: u64,
}

impl PodList {
    /// Those of the known pods, with the version of each, that are not there any more. What was created since the list began is not in it.
    pub(super) fn gone<'p>(&self, known: impl Iterator<Item = (&'p PodKey, u64)>) -> Vec<PodKey> {
        let gone = known.filter(|(key, version)| !self.keys.contains(key) && *version <= self.version);
        gone.map(|(key, _)| key.clone()).collect()
    }
}

impl KubeMachine {
    /// Takes a page of a list.
    pub(super) fn page(&mut self, resource: Resource, response: KubeResponse, now: Timestamp) {
        let (objects, continue_token, resource_version) = match response {
            KubeResponse::Page { objects, continue_token, resource_version } => {
                (objects, continue_token, resource_version)
            }
            // A namespace that was deleted has lost its role: what is left in it is not seen, and that of the others is.
            KubeResponse::Refused(error) if error.class == KubeErrorClass::Denied && !is_watched(resource) => {
                self.report_failure(&Task::List(resource), 0, &error);
                (Vec::new(), None, String::new())
            }
            // Where JobSet is not installed there are none; and gangs do not wait for what is adopted, nor for DaemonSets.
            KubeResponse::Refused(error) if may_fail(resource) && error.class != KubeErrorClass::Expired => {
                self.listings.restart(resource);
                if error.class == KubeErrorClass::NotFound && resource != Resource::DaemonSets {
                    self.listed_workloads(resource, Vec::new(), 0);
                } else {
                    self.report_failure(&Task::List(resource), 0, &error);
                }
                return self.agenda.plan(Task::List(resource), now + self.settings.list_every);
            }
            _ => {
                self.listings.restart(resource);
                return self.agenda.plan(Task::List(resource), now + self.rates.delay(0));
            }
        };
        let listing = self.listings.of(resource);
        listing.objects.extend(objects);
        if continue_token.is_some() {
            listing.continue_token = continue_token;
            return self.agenda.plan(Task::List(resource), now);
        }
        if self.listings.next_namespace(resource) {
            return self.agenda.plan(Task::List(resource), now);
        }
        let listing = self.listings.of(resource);
        let objects = std::mem::take(&mut listing.objects);
        // The list may be older than what a watch has said since it began.
        if version_of(&resource_version) >= version_of(&listing.resource_version) || listing.watch.is_none() {
            listing.resource_version.clone_from(&resource_version);
        }
        let was_complete = self.listings.complete();
        let first = !std::mem::replace(&mut self.listings.of(resource).listed, true);
        if first {
            self.find_unrecorded(&objects);
        }
        if !was_complete && self.listings.complete() {
            self.reports.push(KubeReport::Listed);
        }
        match resource {
            Resource::Pods => {
                self.listed_pods(objects, version_of(&resource_version));
                // One that was begun for fewer pods says nothing of the others.
                self.listings.pods_listed |= self.listings.list_of == self.listings.pods;
            }
            Resource::Nodes => self.listed_nodes(objects, version_of(&resource_version)),
            Resource::DaemonSets => self.listed_daemon_sets(objects),
            Resource::Jobs | Resource::JobSets => {
                self.listed_workloads(resource, objects, version_of(&resource_version));
            }
            _ => self.listed_objects(resource, &objects),
        }
        if is_watched(resource) {
            self.agenda.plan(Task::Watch(resource), now);
        } else {
            self.agenda.plan(Task::List(resource), now + self.settings.list_every);
        }
        if self.listings.complete() {
            self.changed.extend(self.gangs.keys().copied());
            let drains: Vec<String> = self.drains.keys().cloned().collect();
            drains.iter().for_each(|instance| self.drain_step(instance, now));
        }
    }

    /// From now on other pods are watched: all are listed again.
    pub(super) fn watch_pods(&mut self, scope: PodScope, now: Timestamp) {
        if self.listings.pods != scope {
            (self.listings.pods, self.listings.pods_listed) = (scope, false);
            self.foreign = ForeignPods::default();
            self.relist(Resource::Pods, now);
        }
    }

    fn listed_pods(&mut self, objects: Vec<KubeObject>, version: u64) {
        let keys = objects.iter().map(|object| PodKey::of(object.metadata())).collect();
        let list = PodList { keys, version };
        self.foreign_listed(&list);
        self.lost_listed(&list);
        self.copies_listed(&list);
        for key in list.gone(self.pods.iter().map(|(key, pod)| (key, pod.metadata.version()))) {
            self.forget_pod(&key, None);
        }
        self.forget_unlisted(&list);
        for object in objects {
            if let KubeObject::Pod(pod) = object {
                self.see_pod(pod);
            }
        }
    }

    fn listed_nodes(&mut self, objects: Vec<KubeObject>, version: u64) {
        let listed: BTreeSet<&str> = objects.iter().map(|object| object.metadata().name.as_str()).collect();
        let gone = self
            .nodes
            .values()
            .filter(|node| !listed.contains(node.metadata.name.as_str()) && node.metadata.version() <= version);
        let gone: Vec<String> = gone.map(|node| node.metadata.name.clone()).collect();
        for name in gone {
            self.forget_node(&name);
        }
        for object in objects {
            if let KubeObject::Node(node) = object {
                self.see_node(node);
            }
        }
    }

    /// Services or ConfigMaps of gangs: those of attempts that are over are found here.
    fn listed_objects(&mut self, resource: Resource, objects: &[KubeObject]) {
        for object in objects {
            self.see_object(resource, object.metadata());
        }
    }

    /// Takes a Service or ConfigMap as it is now.
    pub(super) fn see_object(&mut self, resource: Resource, metadata: &ObjectMeta) {
        let Some(id) = self.owner(metadata) else { return };
        let gang = self.gangs.entry(id.run).or_default();
        let of_gang = gang.service.as_ref().is_none_or(|service| *service == metadata.name);
        if !of_gang || gang.objects.get(&resource) == Some(&GangObject::Gone) {
            return;
        }
        if gang.namespace.is_empty() {
            gang.namespace = metadata.namespace.clone().unwrap_or_default();
        }
        gang.service = Some(metadata.name.clone());
        gang.objects.insert(resource, GangObject::Exists { uid: metadata.uid.clone() });
        gang.released |= metadata.annotation(ANNOTATION_BARRIER) == Some(BARRIER_OPEN);
        self.changed.insert(id.run);
    }

    pub(super) fn watch_event(&mut self, event: WatchEvent, now: Timestamp) {
        let Some(resource) = self.listings.watched_by(event.watch) else { return };
        if let WatchChange::Applied(_) | WatchChange::Deleted(_) | WatchChange::Bookmark { .. } = &event.change {
            self.watch_works(resource);
        }
        let listing = self.listings.of(resource);
        match event.change {
            WatchChange::Applied(object) => {
                listing.resource_version.clone_from(&object.metadata().resource_version);
                match *object {
                    KubeObject::Pod(pod) => self.see_pod(pod),
                    KubeObject::Node(node) => self.see_node(node),
                    KubeObject::Workload(workload) => self.see_workload(*workload),
                    KubeObject::DaemonSet(set) => self.see_daemon_set(*set),
                    KubeObject::Event(_) | KubeObject::Other(_) => {}
                }
            }
            WatchChange::Deleted(object) => {
                listing.resource_version.clone_from(&object.metadata().resource_version);
                match *object {
                    KubeObject::Pod(pod) => self.forget_pod(&PodKey::of(&pod.metadata), Some(pod)),
                    KubeObject::Node(node) => self.forget_node(&node.metadata.name),
                    KubeObject::Workload(workload) => self.forget_workload(&workload),
                    KubeObject::DaemonSet(set) => self.forget_daemon_set(&set),
                    KubeObject::Event(_) | KubeObject::Other(_) => {}
                }
            }
            WatchChange::Bookmark { resource_version } => {
                listing.resource_version = resource_version;
            }
            WatchChange::Ended => {
                listing.watch = None;
                self.agenda.plan(Task::Watch(resource), now + self.rates.delay(0));
            }
            WatchChange::Expired => self.relist(resource, now),
            WatchChange::Failed(error) if error.class == KubeErrorClass::Expired => self.relist(resource, now),
            WatchChange::Failed(error) => {
                listing.watch = None;
                let failures = listing.failures;
                listing.failures = failures.saturating_add(1);
                let delay = self.rates.delay_after(failures, &error);
                self.report_failure(&Task::Watch(resource), failures, &error);
                self.agenda.plan(Task::Watch(resource), now + delay);
            }
        }
    }

    /// A watch delivers. Watches have no responses that would say so.
    fn watch_works(&mut self, resource: Resource) {
        let failed = std::mem::take(&mut self.listings.of(resource).failures) > 0;
        if failed && self.listings.by_resource.values().all(|listing| listing.failures == 0) {
            self.recovered(Task::Watch(resource).operation());
        }
    }

    /// The watch has lost its place: all is listed again. Until then what is known stays.
    fn relist(&mut self, resource: Resource, now: Timestamp) {
        self.listings.of(resource).watch = None;
        self.listings.restart(resource);
        self.agenda.plan(Task::List(resource), now);
    }
}
