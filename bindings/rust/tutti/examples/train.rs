//! Fits a line on data that is split over the ranks.  The gradients are averaged while the next batch is computed.
//! tutti-run -n 4 train

use tutti::{Operations, ReduceOp};

/// Returns the gradient of the squared error of y = w[0] x + w[1] over this rank's share of a batch.
fn gradient(w: &[f64; 2], batch: usize, rank: usize, ranks: usize) -> Vec<f64> {
    let mut sum = vec![0.0; 2];
    for i in (rank..64).step_by(ranks) {
        let x = ((batch * 64 + i) % 101) as f64 / 50.0 - 1.0;
        let error = w[0] * x + w[1] - (3.0 * x - 2.0);
        sum[0] += 2.0 * error * x / 64.0;
        sum[1] += 2.0 * error / 64.0;
    }
    sum
}

fn main() -> tutti::Result<()> {
    let world = tutti::init("tcp")?;
    let (rank, ranks) = (world.rank(), world.size());
    let mut w = [0.0; 2];
    for batch in 0..200 {
        let work = world.async_all_reduce(gradient(&w, batch, rank, ranks), ReduceOp::Sum)?;
        // .. the next batch could be loaded here ..
        let sum = work.wait()?;
        w[0] -= 0.3 * sum[0];
        w[1] -= 0.3 * sum[1];
    }
    if rank == 0 {
        println!("y = {:.3} x + {:.3}", w[0], w[1]);
    }
    Ok(())
}
