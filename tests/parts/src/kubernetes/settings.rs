//! The flags of each server, the kubeconfig, and the files that they name.
//!
//! Never: a default that a test must know of; what differs from Kubernetes' own is listed here with its why.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{KWOK_STAGES, KubernetesOptions, KwokOptions};
use crate::guarded::guarded;
use crate::secure::Secure;
use crate::{PartError, install, ports, tools};

/// Its ports, all on 127.0.0.1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    /// Where clients connect.
    pub(super) api_server: u16,
    pub(super) etcd: u16,
    /// etcd wants one for others of its kind even where it is alone.
    etcd_peers: u16,
    pub(super) controller_manager: u16,
    pub(super) scheduler: u16,
    pub(super) kwok: u16,
}

impl Ports {
    pub(super) fn free(wanted: Option<u16>) -> Result<Self, PartError> {
        let free = ports::free(6, wanted)?;
        match free[..] {
            [api_server, etcd, etcd_peers, controller_manager, scheduler, kwok] => {
                Ok(Self { api_server, etcd, etcd_peers, controller_manager, scheduler, kwok })
            }
            _ => Err(PartError::NoPort { tried: free.len() }),
        }
    }
}

/// Making a key takes milliseconds.
const OPENSSL_LIMIT: Duration = Duration::from_secs(30);

/// What a test can see the work of. Those of volumes, of certificates and of clouds would only take their share of the processor.
const CONTROLLERS: &str = "--controllers=clusterrole-aggregation-controller,daemonset-controller,deployment-controller,\
                           disruption-controller,endpointslice-controller,garbage-collector-controller,job-controller,\
                           namespace-controller,node-lifecycle-controller,pod-garbage-collector-controller,\
                           replicaset-controller,resourcequota-controller,root-ca-certificate-publisher-controller,\
                           serviceaccount-controller,serviceaccount-token-controller,statefulset-controller,\
                           taint-eviction-controller,ttl-after-finished-controller,\
                           validatingadmissionpolicy-status-controller";

/// Which requests are written down: those of service accounts, with what they ask for and the answer's code. Watches twice: when they begin to
/// be answered, and when they end.
const AUDIT_POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ['system:serviceaccounts']}
  - {level: None}
";

pub(super) fn audit_log_path(folder: &Path) -> PathBuf {
    folder.join("audit.log")
}

pub(super) fn kubeconfig_path(folder: &Path) -> PathBuf {
    folder.join("kubeconfig")
}

/// The token file, the kubeconfig, the key of service accounts, and kwok's stages.
pub(super) fn write(
    folder: &Path,
    secure: &Secure,
    ports: Ports,
    options: &KubernetesOptions,
) -> Result<(), PartError> {
    // The columns of a token file: token, user, its id, its groups. The group is the one that RBAC lets do everything.
    private(&folder.join("tokens.csv"), &format!("{},forebay-admin,forebay-admin,system:masters\n", secure.secret))?;
    private(&kubeconfig_path(folder), &kubeconfig(secure, ports))?;
    let openssl = tools::openssl()?;
    for line in [
        "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out service-account.key",
        "pkey -in service-account.key -pubout -out service-account.pub",
    ] {
        let mut command = guarded(&openssl);
        command.current_dir(folder).args(line.split(' '));
        install::run("openssl", &mut command, &folder.join("openssl.log"), OPENSSL_LIMIT)?;
    }
    if options.audit {
        let path = folder.join("audit.yaml");
        fs::write(&path, AUDIT_POLICY).map_err(PartError::file(&path))?;
    }
    if let Some(kwok) = &options.kwok {
        let path = folder.join("stages.yaml");
        fs::write(&path, kwok.stages.as_deref().unwrap_or(KWOK_STAGES)).map_err(PartError::file(&path))?;
    }
    Ok(())
}

/// A file that only its owner may read, from its first byte on.
fn private(path: &Path, text: &str) -> Result<(), PartError> {
    let file = fs::File::options().create_new(true).write(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(PartError::file(path))
}

fn kubeconfig(secure: &Secure, ports: Ports) -> String {
    // JSON strings are YAML's as well; the folder's name may have any character.
    let ca = format!("{:?}", secure.ca.to_string_lossy());
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: forebay\n\
         clusters:\n- name: forebay\n  cluster: {{server: 'https://127.0.0.1:{}', certificate-authority: {ca}}}\n\
         users:\n- name: forebay-admin\n  user: {{token: {}}}\n\
         contexts:\n- name: forebay\n  context: {{cluster: forebay, user: forebay-admin}}\n",
        ports.api_server, secure.secret
    )
}

pub(super) fn etcd(folder: &Path, ports: Ports) -> Vec<String> {
    let [clients, peers] = [ports.etcd, ports.etcd_peers].map(|port| format!("http://127.0.0.1:{port}"));
    vec![
        flag("data-dir", &folder.join("etcd")),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
        "--log-level=warn".to_owned(),
        // A test's data need not outlive the machine.
        "--unsafe-no-fsync".to_owned(),
    ]
}

pub(super) fn api_server(folder: &Path, ports: Ports, options: &KubernetesOptions) -> Vec<String> {
    let mut flags = vec![
        format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", ports.api_server),
        flag("token-auth-file", &folder.join("tokens.csv")),
        "--authorization-mode=RBAC".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        flag("service-account-key-file", &folder.join("service-account.pub")),
        flag("service-account-signing-key-file", &folder.join("service-account.key")),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--allow-privileged=true".to_owned(),
        // The Service `kubernetes` may not point to a loopback address, so it points nowhere.
        "--endpoint-reconciler-type=none".to_owned(),
    ];
    flags.extend(certificate(folder));
    if !options.controller_manager {
        flags.push("--disable-admission-plugins=ServiceAccount".to_owned());
    }
    if options.audit {
        flags.push(flag("audit-policy-file", &folder.join("audit.yaml")));
        flags.push(flag("audit-log-path", &audit_log_path(folder)));
    }
    flags.extend(options.api_server_flags.iter().cloned());
    flags
}

pub(super) fn controller_manager(folder: &Path, ports: Ports) -> Vec<String> {
    let mut flags = client(folder, ports.controller_manager);
    flags.push(flag("service-account-private-key-file", &folder.join("service-account.key")));
    flags.push(flag("root-ca-file", &folder.join("ca.pem")));
    flags.push(CONTROLLERS.to_owned());
    flags
}

pub(super) fn scheduler(folder: &Path, ports: Ports, options: &KubernetesOptions) -> Vec<String> {
    let mut flags = client(folder, ports.scheduler);
    flags.extend(options.scheduler_flags.iter().cloned());
    flags
}

pub(super) fn kwok(folder: &Path, ports: Ports, options: &KwokOptions) -> Vec<String> {
    let mut flags = vec![
        flag("kubeconfig", &kubeconfig_path(folder)),
        flag("config", &folder.join("stages.yaml")),
        format!("--server-address=127.0.0.1:{}", ports.kwok),
        // As a kubelet renews its lease, so that node lifecycle sees a node that lives.
        "--node-lease-duration-seconds=40".to_owned(),
    ];
    flags.push(match &options.node_selector {
        Some(selector) => format!("--manage-nodes-with-label-selector={selector}"),
        None => "--manage-all-nodes=true".to_owned(),
    });
    flags
}

/// JobSet's controller and the file that it reads. Its webhooks have nowhere to be asked: no configuration of them is applied.
pub(super) fn jobset_manager(folder: &Path, probe: u16, webhook: u16) -> Result<Vec<String>, PartError> {
    let certificates = folder.join("jobset-certificates");
    fs::create_dir_all(&certificates).map_err(PartError::file(&certificates))?;
    for (from, to) in [("server.crt", "tls.crt"), ("server.key", "tls.key")] {
        let to = certificates.join(to);
        fs::copy(folder.join(from), &to).map_err(PartError::file(&to))?;
    }
    let file = folder.join("jobset-manager.yaml");
    let text = format!(
        "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\nleaderElection: {{leaderElect: false}}\n\
         internalCertManagement: {{enable: false}}\nwebhook: {{host: 127.0.0.1, port: {webhook}, certDir: {:?}}}\n\
         metrics: {{bindAddress: '0'}}\nhealth: {{healthProbeBindAddress: '127.0.0.1:{probe}'}}\n",
        certificates.to_string_lossy(),
    );
    fs::write(&file, text).map_err(PartError::file(&file))?;
    Ok(vec![flag("config", &file), flag("kubeconfig", &kubeconfig_path(folder))])
}

/// What kube-controller-manager and kube-scheduler have alike.
fn client(folder: &Path, port: u16) -> Vec<String> {
    let mut flags = vec![
        flag("kubeconfig", &kubeconfig_path(folder)),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        // There is one of each.
        "--leader-elect=false".to_owned(),
    ];
    flags.extend(certificate(folder));
    flags
}

fn certificate(folder: &Path) -> [String; 2] {
    [flag("tls-cert-file", &folder.join("server.crt")), flag("tls-private-key-file", &folder.join("server.key"))]
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn ports() -> Ports {
        Ports { api_server: 1, etcd: 2, etcd_peers: 3, controller_manager: 4, scheduler: 5, kwok: 6 }
    }

    #[test]
    fn a_tests_own_flags_come_last() {
        let api_server_flags = vec!["--watch-cache=false".to_owned()];
        let options = KubernetesOptions { api_server_flags, ..KubernetesOptions::default() };
        let flags = api_server(Path::new("/d"), ports(), &options);
        assert_eq!(flags.last().map(String::as_str), Some("--watch-cache=false"));
        assert!(flags.iter().any(|flag| flag == "--disable-admission-plugins=ServiceAccount"), "nobody makes any");
    }

    #[test]
    fn an_audit_is_written_where_it_is_asked_for() {
        for audit in [true, false] {
            let options = KubernetesOptions { audit, ..KubernetesOptions::default() };
            let flags = api_server(Path::new("/d"), ports(), &options);
            for flag in ["--audit-policy-file=/d/audit.yaml", "--audit-log-path=/d/audit.log"] {
                assert_eq!(flags.iter().any(|has| has == flag), audit, "{flag}");
            }
        }
    }

    #[test]
    fn every_server_listens_on_loopback_alone_and_no_flag_has_the_token() {
        let kwok_options = KwokOptions { node_selector: Some("kwok=true".to_owned()), ..KwokOptions::default() };
        let folder = Path::new("/d");
        for flags in [
            etcd(folder, ports()),
            api_server(folder, ports(), &KubernetesOptions::default()),
            controller_manager(folder, ports()),
            scheduler(folder, ports(), &KubernetesOptions::default()),
            kwok(folder, ports(), &kwok_options),
        ] {
            assert!(flags.iter().any(|flag| flag.contains("127.0.0.1")), "{flags:?}");
            assert!(!flags.iter().any(|flag| flag.contains("0.0.0.0") || flag.contains("token=")), "{flags:?}");
        }
        let [all, labelled] = [KwokOptions::default(), kwok_options].map(|options| kwok(folder, ports(), &options));
        assert!(all.contains(&"--manage-all-nodes=true".to_owned()));
        assert!(labelled.contains(&"--manage-nodes-with-label-selector=kwok=true".to_owned()));
    }

    #[test]
    fn only_their_owner_may_read_the_files_with_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.csv");
        private(&path, "x").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(private(&path, "y").is_err(), "never over somebody's file");
    }
}
