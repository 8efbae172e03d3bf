//! Every rank says hello.  tutti-run -n 4 hello [tcp|mpi]

fn main() -> tutti::Result<()> {
    let backend = std::env::args().nth(1).unwrap_or_else(|| "tcp".to_owned());
    let world = tutti::init(&backend)?;
    println!("Hello from rank {} out of {} processes!", world.rank(), world.size());
    Ok(())
}
