//! The binary `forebay`.

fn main() -> std::process::ExitCode {
    forebay::cli::main()
}
