//! Finds libtutti: in the folder that `TUTTI_LIB_DIR` names, else where `pkg-config tutti` says.

use std::env;
use std::process::Command;

/// Returns what `pkg-config` prints, if it is there and knows tutti.
fn pkg_config(argument: &str) -> Option<String> {
    let output = Command::new("pkg-config").args([argument, "tutti"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn main() {
    println!("cargo:rerun-if-env-changed=TUTTI_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let folder = env::var("TUTTI_LIB_DIR").ok().or_else(|| pkg_config("--variable=libdir"));
    match folder {
        Some(folder) => {
            println!("cargo:rustc-link-search=native={folder}");
            println!("cargo:libdir={folder}"); // DEP_TUTTI_LIBDIR in the build scripts of dependents
        }
        None => println!(
            "cargo:warning=pkg-config does not know tutti; install libtutti, or set TUTTI_LIB_DIR to its folder"
        ),
    }
    println!("cargo:rustc-link-lib=tutti");
}
