//! Exchanges halves with both neighbours, on borrowed buffers, and reduces with an op of the program's own.
//! tutti-run -n 4 ring

use tutti::{Operations, UserOp};

fn main() -> tutti::Result<()> {
    let world = tutti::init("tcp")?;
    let (rank, n) = (world.rank(), world.size());
    let (right, left) = ((rank + 1) % n, (rank + n - 1) % n);

    // An edge to each neighbour, and theirs.
    let edges = [vec![rank as f64; 1000], vec![-(rank as f64); 1000]];
    let mut halo = [vec![0.0; 1000], vec![0.0; 1000]];
    let mut inside = 0.0;
    if n > 1 {
        let [from_left, from_right] = &mut halo;
        tutti::scope(|scope| -> tutti::Result<()> {
            let first = scope.irecv(&world, from_left.as_mut_slice(), left, 0)?;
            let second = scope.irecv(&world, from_right.as_mut_slice(), right, 1)?;
            scope.isend(&world, edges[0].as_slice(), right, 0)?.wait()?;
            scope.isend(&world, edges[1].as_slice(), left, 1)?.wait()?;
            inside = edges[0].iter().sum(); // meanwhile
            let (from_left, from_right) = (first.wait()?, second.wait()?);
            assert_eq!((from_left[0], from_right[0]), (left as f64, -(right as f64)));
            Ok(())
        })?;
    }

    let larger = UserOp::new("larger magnitude", true, |inout: &mut [f64], input: &[f64]| {
        for (a, b) in inout.iter_mut().zip(input) {
            if b.abs() > a.abs() {
                *a = *b;
            }
        }
    })?;
    let mut largest = [halo[1][0]];
    world.all_reduce(&mut largest, &larger)?;
    if rank == 0 {
        println!("the edge of the largest magnitude is {}", largest[0]);
    }
    Ok(())
}
