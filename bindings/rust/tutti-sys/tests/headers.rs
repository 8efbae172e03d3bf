//! Compares the declarations with the C headers, by a C compiler: sizes and offsets, values, and the
//! functions' types.  Skips if there is none.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

/// Functions of headers that this crate leaves out.
const LEFT_OUT: &[&str] = &["tutti_register_tool"];

fn compiler() -> Option<String> {
    let name = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let there = Command::new(&name).arg("--version").output().map(|o| o.status.success());
    if !there.unwrap_or(false) {
        eprintln!("skipped: there is no C compiler");
        return None;
    }
    Some(name)
}

/// Compiles a C program in a folder of its own.  Returns the program's path.
fn compile(cc: &str, name: &str, text: &str, arguments: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("check.c"), folder.join("check"));
    fs::write(&source, text).unwrap();
    let output = Command::new(cc)
        .args(["-std=gnu11", "-Wall", "-Werror", "-I"])
        .arg(format!("{TREE}/include"))
        .args(arguments)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

const HEAD: &str = "#include <stdio.h>\n#include <stdalign.h>\n#include <tutti/tutti.h>\n";

/// The C name of a field.
fn field_in_c(name: &str) -> &str {
    name.trim_end_matches('_')
}

#[test]
fn layouts() {
    let cc = match compiler() {
        Some(cc) => cc,
        None => return,
    };
    let (mut text, mut want) = (format!("{HEAD}int main(void)\n{{\n"), String::new());
    for (name, size, align, fields) in tutti_sys::layouts() {
        writeln!(text, "printf(\"{name} %zu %zu\\n\", sizeof({name}), alignof({name}));").unwrap();
        writeln!(want, "{name} {size} {align}").unwrap();
        for (field, offset) in fields {
            let c = field_in_c(field);
            writeln!(text, "printf(\"{name}.{c} %zu\\n\", offsetof({name}, {c}));").unwrap();
            writeln!(want, "{name}.{c} {offset}").unwrap();
        }
    }
    text += "return 0;\n}\n";
    let found = Command::new(compile(&cc, "layouts", &text, &[])).output().unwrap();
    for (found, want) in String::from_utf8(found.stdout).unwrap().lines().zip(want.lines()) {
        assert_eq!(found, want, "the headers on the left, types.rs on the right");
    }
}

/// The constants of types.rs: name and value, as Rust has them.
fn constants() -> Vec<(String, String)> {
    let source = include_str!("../src/types.rs");
    let lines = source.lines().filter_map(|line| line.strip_prefix("pub const "));
    lines
        .map(|line| {
            let (name, rest) = line.split_once(": ").unwrap();
            let value = rest.split_once(" = ").unwrap().1.trim_end_matches(';');
            let value = value.replace("i64::MAX", "INT64_MAX");
            (name.to_owned(), value)
        })
        .collect()
}

#[test]
fn values() {
    let cc = match compiler() {
        Some(cc) => cc,
        None => return,
    };
    let mut text = String::from(HEAD);
    let constants = constants();
    for (name, value) in &constants {
        writeln!(text, "_Static_assert((long long){name} == (long long)({value}), \"{name}\");").unwrap();
    }
    // Every row of the headers' tables is a constant here.
    text += "#define ROW(name, ...) puts(\"TUTTI_\" #name);\nint main(void)\n{\n";
    text += "TUTTI_DTYPES(ROW) TUTTI_REDUCE_OPS(ROW) TUTTI_KINDS(ROW)\nreturn 0;\n}\n";
    let found = Command::new(compile(&cc, "values", &text, &[])).output().unwrap();
    for row in String::from_utf8(found.stdout).unwrap().lines() {
        assert!(constants.iter().any(|(name, _)| name == row), "types.rs lacks {row}");
    }
}

/// Translates a type of functions.rs to C.
fn type_in_c(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(to) = rust.strip_prefix("*const ") {
        return format!("{} const *", type_in_c(to));
    }
    if let Some(to) = rust.strip_prefix("*mut ") {
        return format!("{} *", type_in_c(to));
    }
    match rust {
        "c_int" => "int",
        "c_char" => "char",
        "c_void" => "void",
        "i64" => "int64_t",
        "u64" => "uint64_t",
        "u16" => "uint16_t",
        "u8" => "uint8_t",
        "usize" => "size_t",
        other => other,
    }
    .to_owned()
}

/// Translates a parameter, "name: type".
fn parameter_in_c(parameter: &str) -> String {
    let parameter = parameter.trim();
    if parameter == "..." {
        return parameter.to_owned();
    }
    let (_, rust) = parameter.split_once(':').unwrap_or_else(|| panic!("{parameter}"));
    let function = match rust.trim().strip_prefix("Option<unsafe extern \"C\" fn(") {
        Some(function) => function,
        None => return type_in_c(rust),
    };
    let function = function.trim_end_matches('>');
    let (parameters, result) = function.split_once(')').unwrap();
    let result = result.trim().strip_prefix("-> ").map_or("void".to_owned(), type_in_c);
    let parameters: Vec<_> = parameters.split(',').map(parameter_in_c).collect();
    format!("{result} (*)({})", parameters.join(", "))
}

/// Splits parameters at commas that are not inside of parentheses.
fn split(parameters: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in parameters.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().unwrap().push(c),
        }
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Declares every function of functions.rs again, in C, after the headers.  The compiler refuses a
/// declaration that differs.
#[test]
fn functions() {
    let cc = match compiler() {
        Some(cc) => cc,
        None => return,
    };
    let source = include_str!("../src/functions.rs");
    let (mut text, mut names) = (String::from(HEAD), Vec::new());
    for item in source.split("pub fn ").skip(1) {
        let item = item.split_once(';').unwrap().0.split_whitespace().collect::<Vec<_>>().join(" ");
        let (name, rest) = item.split_once('(').unwrap();
        let (parameters, result) = rest.rsplit_once(") -> ").map_or_else(
            || (rest.rsplit_once(')').unwrap().0, "void".to_owned()),
            |(parameters, result)| (parameters, type_in_c(result)),
        );
        let parameters: Vec<_> = split(parameters).iter().map(|p| parameter_in_c(p)).collect();
        let parameters = if parameters.is_empty() { "void".to_owned() } else { parameters.join(", ") };
        writeln!(text, "{result} {name}({parameters});").unwrap();
        names.push(name.to_owned());
    }
    compile(&cc, "functions", &text, &["-c"]);
    let exports = fs::read_to_string(format!("{TREE}/tests/abi/exports.txt")).unwrap();
    let exports = exports.lines().filter(|line| line.starts_with("tutti_"));
    for export in exports.filter(|export| !LEFT_OUT.contains(export)) {
        assert!(names.iter().any(|name| name == export), "functions.rs lacks {export}");
    }
}
