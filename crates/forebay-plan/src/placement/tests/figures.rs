//! Tests against the paper's tables.

use super::super::replicas::Objective;
use super::super::schemes::{Scheme, place};
use super::super::simulate::{Policy, route, throughput};
use super::super::workload::{Distribution, Stream};
use super::{PAPER, paper_cluster};

#[test]
fn table_1_is_reproduced() {
    let printed: [[f64; 4]; 5] = [
        [7565.0, 7548.0, 7449.0, 7438.0],
        [10313.0, 10288.0, 4715.0, 4684.0],
        [14882.0, 14827.0, 149.0, 142.0],
        [17344.0, 8795.0, 3361.0, 500.0],
        [23542.0, 6329.0, 129.0, 0.0],
    ];
    for ((name, distribution), printed) in PAPER.into_iter().zip(printed) {
        let mut shares = distribution.shares(4).expect("valid parameters");
        shares.sort_by(|a, b| b.total_cmp(a));
        for (share, printed) in shares.into_iter().zip(printed) {
            // The paper drew its requests: four standard deviations.
            let spread = 4.0 * (30_000.0 * share * (1.0 - share)).sqrt() + 1.0;
            let wanted = 30_000.0 * share;
            assert!(
                (wanted - printed).abs() <= spread,
                "{name}: {wanted}, printed {printed}"
            );
        }
    }
}

#[test]
fn shares_are_those_of_closed_forms() {
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a}, {b}");
    // x^3 and 3x^2 - 2x^3 at the chunks' ends, but for the 1e-7 left out beyond either end.
    let power = Distribution::PowerLaw { shape: 2.0 }
        .shares(2)
        .expect("shares");
    let (low, high) = (1e-7f64.sqrt(), (1.0 - 1e-7f64).sqrt());
    close(power[0], low.midpoint(high).powi(2) - 1e-7);
    let beta = Distribution::Beta {
        alpha: 2.0,
        beta: 2.0,
    }
    .shares(4)
    .expect("shares");
    assert!((beta[0] - 0.15625).abs() < 2e-4, "{beta:?}");
    close(beta[0], beta[3]);
    // The mean and the deviation move and stretch the range, and nothing else.
    let normal = |mean, deviation| {
        Distribution::Normal { mean, deviation }
            .shares(64)
            .expect("shares")
    };
    assert_eq!(normal(0.0, 1.0), normal(1e6, 1e-3));
    let zipf = Distribution::Zipf { exponent: 1.0 }
        .shares(3)
        .expect("shares");
    close(zipf[0] / zipf[2], 3.0);
    for (name, distribution) in PAPER {
        for partitions in [1, 2, 7, 1024] {
            let shares = distribution.shares(partitions).expect("shares");
            assert_eq!(shares.len(), partitions);
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{name}");
            assert!(shares.iter().all(|&share| share >= 0.0), "{name}");
        }
    }
}

#[test]
fn parameters_that_mean_nothing_are_refused() {
    for (distribution, path) in [
        (
            Distribution::Beta {
                alpha: 0.0,
                beta: 1.0,
            },
            "alpha",
        ),
        (
            Distribution::Beta {
                alpha: 1.0,
                beta: f64::NAN,
            },
            "beta",
        ),
        (
            Distribution::Normal {
                mean: f64::INFINITY,
                deviation: 1.0,
            },
            "mean",
        ),
        (
            Distribution::Normal {
                mean: 0.0,
                deviation: -1.0,
            },
            "deviation",
        ),
        (Distribution::PowerLaw { shape: 0.0 }, "shape"),
        (
            Distribution::Gamma {
                shape: f64::INFINITY,
            },
            "shape",
        ),
        (Distribution::Zipf { exponent: -1.0 }, "exponent"),
    ] {
        assert_eq!(distribution.shares(4).expect_err("refused").path, path);
    }
    assert_eq!(
        Distribution::Uniform.shares(0).expect_err("refused").path,
        "partitions"
    );
    for shape in [1e-3, 1e4] {
        assert!(Distribution::Gamma { shape }.shares(8).is_ok());
        assert!(Distribution::PowerLaw { shape }.shares(8).is_ok());
        assert!(
            Distribution::Beta {
                alpha: shape,
                beta: 1.0
            }
            .shares(8)
            .is_ok()
        );
    }
}

#[test]
fn table_4_shifts_keep_the_throughput() {
    let beta = |shape| Distribution::Beta {
        alpha: shape,
        beta: shape,
    };
    let power = |shape| Distribution::PowerLaw { shape };
    let gamma = |shape| Distribution::Gamma { shape };
    let shifts = [
        (beta(2.0), [1.0, 1.5, 2.0, 4.0, 5.0].map(beta)),
        (power(3.0), [2.0, 2.5, 3.0, 4.0, 5.0].map(power)),
        (gamma(5.0), [7.0, 6.0, 5.0, 4.0, 3.0].map(gamma)),
    ];
    for (planned, shifts) in shifts {
        let cluster = paper_cluster(planned, 1);
        let placement = place(&cluster, Scheme::Smooth, Objective::MinMax).expect("a placement");
        for shifted in shifts {
            let shares = shifted.shares(128).expect("valid parameters");
            let mut stream = Stream::new(&shares, 77);
            let served = route(&placement, &mut stream, 30_000, Policy::LeastLoaded, 1);
            let throughput = throughput(&served);
            assert!(throughput >= 0.99, "{shifted:?}: {throughput}");
        }
    }
}

#[test]
fn routing_matters_as_in_the_notes() {
    let gamma = Distribution::Gamma { shape: 5.0 };
    let cluster = paper_cluster(gamma, 1);
    let placement = place(&cluster, Scheme::Balanced, Objective::MinMax).expect("a placement");
    let shares = gamma.shares(128).expect("valid parameters");
    let of = |policy| {
        let served = route(&placement, &mut Stream::new(&shares, 1), 30_000, policy, 1);
        assert!((served.iter().sum::<f64>() - 30_000.0).abs() < 1e-6);
        throughput(&served)
    };
    assert!(
        of(Policy::LeastLoaded) > 0.998,
        "{}",
        of(Policy::LeastLoaded)
    );
    assert!(
        (0.95..0.995).contains(&of(Policy::Random)),
        "{}",
        of(Policy::Random)
    );
    // The stream is the one that was planned for.
    assert!(of(Policy::EvenSplit) > 0.999, "{}", of(Policy::EvenSplit));
}
