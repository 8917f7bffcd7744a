//! Reading traces: what a good file becomes, in each layout, and that real files are read whole.
//! Errors have a file of their own, `bad_input.rs`; no test here reads a message.

mod workloads;

use std::collections::BTreeMap;

use forebay_sim::trace::{self, Trace, TraceFormat, TraceJob, generate_trace, read_nodes};
use workloads::{as_csv, file, in_folder, real_or};

fn read(name: &str, content: impl AsRef<[u8]>) -> Trace {
    let (_folder, path) = file(name, content);
    trace::read(path, None).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_normalized_file_with_every_column_in_any_order() {
    // Given a byte order mark, CRLF, quotes, blank lines, decimals and columns in an order of their own
    let csv = "\u{feff}gpus,Job_ID,duration_s,submit_s,workers,gpu_milli,gpu_mem_mib,cpu,mem_mib,user,queue,tier,priority,\
               gpu_model,deadline_s,estimate_s,checkpoint_every_s,restart_s,preemptible,max_wait_s,gpu_util,colour,workers_max,grace_s,saves,spot,failures\r\n\
               8,\"b, the \"\"second\"\"\",573.2,10.0005,2,,40000,96000,393216,ann,vision/batch,normal,500,A100|h100,\
               7200,600,300,12.5,true,900,0.73,red,6,1.5,yes,false,2\r\n\
               \r\n\
               1,a,0,1.5,,250,,,,,,,,,,,,,no,,,,,,,,\r\n\
               0,c,5,1.5,,,,,,\"x\ny\",,,,,,,,,,,,,,,,,\r\n";
    let trace = read("own.csv", csv);
    assert_eq!((trace.name.as_str(), trace.format), ("own", TraceFormat::Normalized));
    let word = |s: &str| Some(s.to_owned());
    let b = TraceJob {
        id: "b, the \"second\"".into(),
        submit_ms: 10_001,
        duration_ms: 573_200,
        gpus: 8,
        workers: Some(2),
        workers_max: Some(6),
        gpu_milli: 1000,
        gpu_mem_mib: 40_000,
        cpu_milli: 96_000,
        mem_mib: 393_216,
        user: word("ann"),
        queue: word("vision/batch"),
        tier: word("normal"),
        priority: word("500"),
        gpu_models: vec!["a100".into(), "h100".into()],
        deadline_ms: Some(7_200_000),
        estimate_ms: Some(600_000),
        checkpoint_every_ms: Some(300_000),
        grace_ms: Some(1500),
        saves: Some(true),
        spot: Some(false),
        failures: 2,
        restart_ms: Some(12_500),
        preemptible: Some(true),
        max_wait_ms: Some(900_000),
        labels: BTreeMap::new(),
        gpu_util_permille: Some(730),
        line: 2,
    };
    assert_eq!(trace.jobs.last(), Some(&b));
    let first = &trace.jobs[0];
    assert_eq!((first.id.as_str(), first.submit_ms, first.duration_ms, first.gpu_milli), ("a", 1500, 0, 250));
    assert_eq!((first.preemptible, first.workers, first.line), (Some(false), None, 4));
    let note = "own.csv, line 1: columns without a meaning here were not used: colour";
    assert!(matches!(&trace.notes[..], [only] if only.ends_with(note)), "{:?}", trace.notes);
}

#[test]
fn an_id_with_a_line_break_is_refused_and_lines_stay_right() {
    let (_folder, path) = file("t.csv", "job_id,submit_s,duration_s,gpus\n\"a\nb\",1,1,1\n");
    assert!(trace::read(&path, None).is_err());
    // A quoted line break in a column that may have one counts as a line of the file.
    let (_folder, path) = file("t.csv", "job_id,submit_s,duration_s,gpus,user\na,1,1,1,\"x\ny\"\nb,1,oops,1,\n");
    let error = trace::read(&path, None).expect_err("a bad number");
    assert!(error.to_string().contains("line 4,"), "{error}");
}

#[test]
fn openb_pods_as_published() {
    let head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n";
    let rows = "p-0,12000,16384,1,460,,LS,Running,427061,437061,427071\n\
                p-1,8000,30517,0,0,,BE,Running,100,200,100\n\
                p-2,18708,64512,1,1000,V100M16|V100M32|V100M32,LS,Pending,50,60,\n\
                p-3,88000,327680,8,1000,V100M16|V100M32|V100M32,Burstable,Failed,70,80,70\n";
    let trace = read("openb_pod_list_some.csv", format!("{head}{rows}"));
    assert_eq!(trace.format, TraceFormat::Openb);
    let ids: Vec<&str> = trace.jobs.iter().map(|j| j.id.as_str()).collect();
    assert_eq!(ids, ["p-3", "p-1", "p-0"]);
    let [big, cpu, shared] = &trace.jobs[..] else { panic!("three pods") };
    assert_eq!((big.gpus, big.gpu_milli, big.duration_ms, big.workers), (8, 1000, 10_000, Some(1)));
    assert_eq!(
        (big.gpu_models.as_slice(), big.priority.as_deref()),
        (&["v100m16".into(), "v100m32".into()][..], Some("Burstable"))
    );
    assert_eq!((cpu.gpus, cpu.cpu_milli, cpu.mem_mib), (0, 8000, 30_517));
    assert_eq!((shared.gpu_milli, shared.submit_ms, shared.duration_ms), (460, 427_061_000, 9_990_000));
    assert_eq!(trace.notes, ["1 pods were skipped: never scheduled (no scheduled_time)"]);
}

#[test]
fn philly_jobs_as_published() {
    let attempt = |from: &str, to: &str, gpus: &str| {
        format!(r#"{{"start_time": {from}, "end_time": {to}, "detail": [{{"ip": "m47", "gpus": [{gpus}]}}]}}"#)
    };
    let job = |id: &str, at: &str, attempts: &[String]| {
        let list = attempts.join(", ");
        format!(
            r#"{{"status": "Pass", "vc": "ee9e8c", "jobid": "{id}", "attempts": [{list}], "submitted_time": "{at}", "user": "u1"}}"#
        )
    };
    let two = r#""gpu0", "gpu1""#;
    let jobs = [
        job(
            "late",
            "2017-10-07 01:11:39",
            &[
                attempt(r#""2017-10-07 01:12:09""#, r#""2017-10-07 01:13:23""#, two),
                attempt(r#""2017-10-07 01:13:30""#, r#""2017-10-09 06:53:12""#, r#""gpu0", "gpu1", "gpu2", "gpu3""#),
            ],
        ),
        job("never", "2017-10-07 01:00:00", &[]),
        job("running", "2017-10-07 01:00:00", &[attempt(r#""2017-10-07 01:12:09""#, "null", two)]),
        job(
            "gap",
            "2017-10-07 01:00:00",
            &[attempt("null", "null", two), attempt(r#""2017-10-07 02:00:00""#, r#""2017-10-07 02:00:30""#, two)],
        ),
        job("clock", "2017-11-05 00:59:00", &[attempt(r#""2017-11-05 01:50:00""#, r#""2017-11-05 01:10:00""#, "")]),
    ];
    let trace = read("cluster_job_log", format!("[\n{}\n]\n", jobs.join(",\n")));
    assert_eq!(trace.format, TraceFormat::Philly);
    let got: Vec<_> = trace.jobs.iter().map(|j| (j.id.as_str(), j.submit_ms, j.duration_ms, j.gpus, j.line)).collect();
    let late_ms = (74 + 2 * 86_400 + 5 * 3600 + 39 * 60 + 42) * 1000;
    let clock_ms = (29 * 86_400 - 60) * 1000;
    assert_eq!(got, [("gap", 0, 30_000, 2, 5), ("late", 699_000, late_ms, 4, 2), ("clock", clock_ms, 0, 0, 6)]);
    assert_eq!((trace.jobs[0].queue.as_deref(), trace.jobs[0].user.as_deref()), (Some("ee9e8c"), Some("u1")));
    let counts: Vec<&str> = trace.notes.iter().map(|n| n.split_once(' ').map_or("", |(count, _)| count)).collect();
    assert_eq!(counts, ["1", "1", "1", "1", "1", "2"], "{:#?}", trace.notes);
}

#[test]
fn helios_jobs_as_published() {
    let csv = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n\
               1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0\n\
               1425512,uVMrF,vchbv,16,64,2,FAILED,2020-06-09 18:41:27,2020-06-09 18:42:27,2020-06-09 18:45:36,189,60\n\
               1425513,uVMrF,vchbv,16,64,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:42:27,2020-06-09 18:45:36,189,60\n\
               1425514,uzqls,vcpDC,1,1,1,CANCELLED,2020-06-09 18:41:28,None,2020-06-17 14:15:21,,\n";
    let trace = read("cluster_log.csv", csv);
    assert_eq!(trace.format, TraceFormat::Helios);
    let got: Vec<_> = trace.jobs.iter().map(|j| (j.submit_ms, j.duration_ms, j.gpus, j.workers, j.cpu_milli)).collect();
    assert_eq!(
        got,
        [
            (0, 36_848_000, 1, Some(1), 1000),
            (26_000, 189_000, 16, Some(2), 64_000),
            (26_000, 189_000, 16, None, 64_000),
        ]
    );
    assert_eq!(trace.jobs[0].queue.as_deref(), Some("vcJkd"));
    assert_eq!(trace.notes.len(), 2, "{:?}", trace.notes);
}

#[test]
fn node_lists_of_both_kinds() {
    let (_folder, own) = file("n.csv", "node,cpu_milli,mem_mib,gpus,gpu_model\nn0,64000,262144,2,P100\n");
    let (_folder2, published) =
        file("n.csv", "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,32000,1024,0,\n");
    let (own, published) = (read_nodes(own).expect("own"), read_nodes(published).expect("published"));
    assert_eq!(own[0], published[0]);
    assert_eq!((published[1].gpus, published[1].gpu_model.as_deref()), (0, None));
}

#[test]
fn a_node_list_is_read_whole() {
    // 1,213 nodes with 6,212 GPUs, as the real one has.
    let gpus = |n: u32| if n < 147 { 6 } else { 5 };
    let made = || {
        let rows = (0..1213).map(|n| format!("node-{n:04},64000,262144,{},P100\n", gpus(n)));
        String::from("node,cpu_milli,mem_mib,gpus,gpu_model\n") + &rows.collect::<String>()
    };
    let (_folder, path) = real_or("openb_2023_nodes.csv", made);
    let nodes = read_nodes(path).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((nodes.len(), nodes.iter().map(|n| n.gpus).sum::<u32>()), (1213, 6212));
}

#[test]
fn a_file_is_real_where_the_folder_is_and_a_misspelt_name_fails() {
    assert_eq!(in_folder(None, "philly.csv"), None);
    let (folder, path) = file("philly.csv", "");
    assert_eq!(in_folder(Some(folder.path()), "philly.csv"), Some(path));
    let misspelt = std::panic::catch_unwind(|| in_folder(Some(folder.path()), "phily.csv"));
    assert!(misspelt.is_err(), "a file that is not in the folder is no reason to make one up");
}

#[test]
fn real_traces_are_read_whole_or_generated_ones_come_back() {
    let known = [
        ("openb_2023_default.csv", 8152),
        ("philly_2017_dev_oct02_oct22.csv", 38_322),
        ("philly_vc103959_deadlines_dev.csv", 218),
        ("philly_chronus_mix1.csv", 30_756),
        ("sia_helios_saturn_10days.csv", 1600),
        ("sia_philly_8days.csv", 1280),
        ("starburst_tab4_load1.csv", 500),
    ];
    for (name, jobs) in known {
        let (_folder, path) = real_or(name, || as_csv(&generate_trace(11, jobs)));
        let trace = trace::read(path, None).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((trace.jobs.len(), trace.format), (jobs, TraceFormat::Normalized), "{name}");
        assert_eq!(trace.notes, Vec::<String>::new(), "{name}");
        assert!(trace.jobs.windows(2).all(|w| w[0].submit_ms <= w[1].submit_ms), "{name}");
    }
    let made = generate_trace(11, 2000);
    assert_eq!(read("made.csv", as_csv(&made)).jobs, made);
}

#[test]
fn a_format_can_be_asked_for_by_name() {
    for name in ["normalized", "openb", "philly", "helios", "events"] {
        let format: TraceFormat = name.parse().expect(name);
        assert_eq!(format.to_string(), name);
    }
    let error = "slurm".parse::<TraceFormat>().expect_err("no such format");
    assert!(error.to_string().contains("normalized, openb, philly, helios, events"), "{error}");
}
