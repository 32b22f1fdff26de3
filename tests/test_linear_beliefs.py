"""Beliefs about [A B] against closed forms and calibration; logs; what is cut off."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import prudent as pr


def a_log(random, theta, rows, noise):
    n, p = theta.shape
    inputs = random.normal(size=(rows, p))
    outputs = inputs @ theta.T + random.normal(size=(rows, n)) @ np.linalg.cholesky(noise).T
    return pr.VectorLog(inputs[:, :n], inputs[:, n:], outputs)


def a_prior(random, n, m):
    p = n + m
    root, other = random.normal(size=(p, p)), random.normal(size=(n, n))
    return random.normal(size=(n, p)), root @ root.T + np.eye(p), other @ other.T + 0.5 * np.eye(n)


def test_known_noise_is_a_gaussian_regression():
    random = np.random.default_rng(0)
    mean, precision, noise = a_prior(random, 2, 1)
    log = a_log(random, mean, 7, noise)
    belief = pr.MatrixNormal(mean, precision, noise).update(log)
    # The same as one long vector, row after row of [A B].
    prior = np.linalg.inv(np.kron(noise, np.linalg.inv(precision)))
    design = np.kron(np.eye(2), log.inputs())
    weight = np.kron(np.linalg.inv(noise), np.eye(7))
    whole = prior + design.T @ weight @ design
    centre = np.linalg.solve(whole, prior @ mean.ravel() + design.T @ weight @ log.next_state.T.ravel())
    np.testing.assert_allclose(belief.mean().ravel(), centre, rtol=1e-10)
    draws = belief.sample(0, 200_000).reshape(-1, 6)
    np.testing.assert_allclose(np.cov(draws.T), np.linalg.inv(whole), atol=2e-2)
    halves = (
        pr.VectorLog(log.state[:3], log.action[:3], log.next_state[:3]),
        pr.VectorLog(log.state[3:], log.action[3:], log.next_state[3:]),
    )
    twice = pr.MatrixNormal(mean, precision, noise).update(halves[0]).update(halves[1])
    np.testing.assert_allclose(twice.mean(), belief.mean(), rtol=1e-10)


def test_unknown_noise_in_one_dimension_is_normal_inverse_gamma():
    random = np.random.default_rng(1)
    log = a_log(random, np.array([[0.9, 0.5]]), 12, np.eye(1))
    prior = pr.MatrixNormalInverseWishart([[0.0, 0.0]], np.eye(2), [[3.0]], 5.0)
    belief = prior.update(log)
    inputs, outputs = log.inputs(), log.next_state[:, 0]
    precision = np.eye(2) + inputs.T @ inputs
    mean = np.linalg.solve(precision, inputs.T @ outputs)
    scale = 3.0 + outputs @ outputs - mean @ precision @ mean
    np.testing.assert_allclose(belief.mean(), [[*mean, scale / (5.0 + 12 - 2)]], rtol=1e-10)
    draws = belief.sample(0, 20_000)[:, 0]
    assert stats.kstest(draws[:, 2], stats.invgamma(17.0 / 2.0, scale=scale / 2.0).cdf).pvalue > 1e-3
    spread = np.sqrt(scale / 17.0 * np.linalg.inv(precision)[0, 0])
    assert stats.kstest((draws[:, 0] - mean[0]) / spread, stats.t(17.0).cdf).pvalue > 1e-3


def test_the_noise_is_inverse_wishart():
    random = np.random.default_rng(2)
    mean, precision, scale = a_prior(random, 3, 1)
    belief = pr.MatrixNormalInverseWishart(mean, precision, scale, 9.0)
    draws = belief.sample(0, 4000)
    other = stats.invwishart(9.0, scale).rvs(4000, random_state=np.random.default_rng(3))
    for i, j in ((0, 0), (0, 1), (2, 2)):
        assert stats.ks_2samp(draws[:, i, 4 + j], other[:, i, j]).pvalue > 1e-3
    np.testing.assert_allclose(draws[:, :, 4:], draws[:, :, 4:].transpose(0, 2, 1), atol=1e-12)


@pytest.mark.parametrize("known", [True, False])
def test_simulation_based_calibration(known):
    random = np.random.default_rng(4)
    mean, precision, scale = a_prior(random, 2, 1)
    noise = scale
    prior = (
        pr.MatrixNormal(mean, precision, noise) if known else pr.MatrixNormalInverseWishart(mean, precision, scale, 8.0)
    )
    ranks = []
    for truth in prior.sample(7, 400):
        spread = noise if known else truth[:, 3:]
        belief = prior.update(a_log(random, truth[:, :3], 6, spread))
        ranks.append((belief.draw(random, 63) < truth).mean(axis=0))
    ranks = np.array(ranks)
    for place in np.ndindex(ranks.shape[1:]):
        assert stats.kstest(ranks[(slice(None), *place)], "uniform").pvalue > 1e-4, place


def test_what_is_cut_off():
    random = np.random.default_rng(5)
    mean, precision, noise = a_prior(random, 2, 1)
    whole = pr.MatrixNormal(mean, precision, noise)
    limits = {"credible": 0.7, "radius": 2.0, "low": mean - 0.6, "high": mean + 0.8}
    for names in (("credible",), ("low", "high"), ("credible", "radius"), ("radius", "low", "high")):
        cut = pr.CutOff(whole, **{name: limits[name] for name in names})
        draws, share = cut.sample(0, 3000), cut.mass_cut_off()
        assert len(draws) == 3000 and np.all(cut.holds(draws))
        # The same law as keeping by hand what is inside.
        plain = whole.sample(1, 20_000)
        kept = plain[cut.holds(plain)]
        assert share.low - 0.02 < 1 - len(kept) / 20_000 < share.high + 0.02
        assert stats.ks_2samp(draws[:, 0, 2], kept[:, 0, 2]).pvalue > 1e-3
    share = pr.CutOff(whole, credible=0.7).mass_cut_off()
    assert share.low < 0.3 < share.high
    longer = pr.CutOff(whole, credible=0.7).update(a_log(random, mean, 5, noise))
    np.testing.assert_allclose(longer.posterior.regression.precision[0, 0] > precision[0, 0], True)


def test_the_interval_of_a_share_holds_what_it_says():
    for count, draws in ((0, 50), (3, 50), (50, 50), (17, 1000)):
        share = pr.Share.of(count, draws)
        exact = stats.binomtest(count, draws).proportion_ci(0.95, method="exact")
        np.testing.assert_allclose([share.low, share.high], [exact.low, exact.high])


def test_logs_from_frames_and_files(tmp_path):
    frame = pd.DataFrame(
        {"walk": [0, 0, 0, 1, 1], "x": [0.0, 1.0, 2.0, 5.0, 6.0], "v": 1.0, "u": [1, 2, 3, 4, 5], "note": "n"}
    )
    path, columnar = tmp_path / "log.csv", tmp_path / "log.parquet"
    frame.to_csv(path, index=False)
    frame.to_parquet(columnar)
    for source in (frame, path, str(columnar)):
        log = pr.read_vector_log(source, ["x", "v"], ["u"], episode="walk")
        assert log.state[:, 0].tolist() == [0.0, 1.0, 5.0]
        assert log.next_state[:, 0].tolist() == [1.0, 2.0, 6.0]
        assert log.action.ravel().tolist() == [1.0, 2.0, 4.0]
    rows = frame.assign(y=frame.x + 1)
    log = pr.read_vector_log([rows, rows], ["x"], ["u"], next_states=["y"])
    assert len(log) == 10
    np.testing.assert_allclose(log.next_state, log.state + 1)
    with pytest.raises(pr.InputError, match="column 'z' is missing"):
        pr.read_vector_log(frame, ["z"], ["u"])
    with pytest.raises(pr.InputError, match="one column for each of the 1 states"):
        pr.read_vector_log(frame, ["x"], ["u"], next_states=["v", "walk"])
    with pytest.raises(pr.InputError, match="no row is followed"):
        pr.read_vector_log(frame.assign(walk=range(5)), ["x"], ["u"], episode="walk")


def test_walks_and_least_squares():
    family = pr.LinearFamily(np.eye(2), [[1.0]], noise=np.eye(2) * 1e-12, discount=0.9, start_mean=[1.0, -1.0])
    truth = family.theta([[0.9, 0.1], [0.0, 0.8]], [[0.0], [1.0]])
    log = family.simulate(
        truth, pr.LinearGaussianPolicy([[0.1, -0.2]], covariance=[[1.0]]), steps=20, rollouts=2, seed=0
    )
    np.testing.assert_allclose(log.least_squares(), truth, atol=1e-5)
    # One walk after the other.
    np.testing.assert_allclose(log.state[1:20], log.next_state[:19])
    np.testing.assert_allclose(log.state[20], [1.0, -1.0])
    idle = family.simulate(truth, pr.LinearGaussianPolicy([[0.1, -0.2]]), steps=20, seed=0)
    assert idle.rank() == 2
    with pytest.raises(pr.InputError, match="moves in 2 of 3 directions"):
        idle.least_squares()
