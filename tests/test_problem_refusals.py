"""Bad input, written by hand: each is refused with exit code 2 and a message that says what, where and what to do."""

import os
import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app
from prudent.problems import example

PROBLEM, LOG, COSTS = example("machine").values()

LISTED = '\nsuccessors = "successors.csv"\n'


def edit(text, *changes):
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def problem(*changes):
    return {"problem.toml": edit(PROBLEM, *changes)}


def log(*changes):
    return {"log.csv": edit(LOG, *changes)}


def costs(*changes):
    return {"costs.csv": edit(COSTS, *changes)}


def other_log(name, content):
    return problem(('"log.csv"', f'"{name}"')) | {name: content}


REFUSED = {
    # the problem file itself
    "no such file": ({"problem.toml": None}, "problem.toml: there is no such file"),
    "not toml": (problem(("discount = 0.95", "discount 0.95")), "is not TOML: Expected '='"),
    "not toml, the line": (problem(("discount = 0.95", "discount 0.95")), "problem.toml, line 7: is not TOML"),
    "never closed": (
        {"problem.toml": 'discount = 0.9\n\nstart = """new\n[data]\ncosts = "costs.csv"\n'},
        "problem.toml, line 3: is not TOML: Unterminated string (what begins there is not closed)",
    ),
    "json": ({"problem.toml": '{"discount": 0.9}'}, "it looks like JSON"),
    "binary": ({"problem.toml": b"\xff\xfe\x00\x01"}, "is not UTF-8 text"),
    "empty": ({"problem.toml": ""}, "discount is missing"),
    "nested": ({"problem.toml": "a = " + "[" * 5000}, "is not TOML"),
    "duplicate key": (problem(("seed = 0", "seed = 0\nseed = 1")), "Cannot overwrite a value"),
    "unknown key": (problem(("discount =", "discont =")), "line 7: unknown key 'discont'; did you mean 'discount'?"),
    "unknown key in a table": (
        problem(("level = 0.9", "levle = 0.9")),
        "unknown key 'levle'; did you mean 'level'? in [risk]",
    ),
    "unknown table": (problem(("[posterior]", "[posteriors]")), "unknown key 'posteriors'; did you mean 'posterior'?"),
    "discount 1": (problem(("0.95", "1.0")), "line 7: discount: input should be less than 1, got 1.0"),
    "discount below 0": (problem(("0.95", "-0.1")), "discount: input should be greater than or equal to 0, got -0.1"),
    "discount nan": (problem(("0.95", "nan")), "discount: input should be a finite number, got nan"),
    "discount text": (problem(("0.95", '"high"')), "discount: input should be a valid number, got 'high'"),
    "risk level 1": (problem(("level = 0.9", "level = 1.0")), "risk.level: input should be less than 1, got 1.0"),
    "risk level negative": (problem(("level = 0.9", "level = -1")), "risk.level: input should be greater than or"),
    "unknown risk": (problem(('"cvar"', '"cvr"')), "risk: kind 'cvr' is unknown; did you mean 'cvar'?"),
    "no risk kind": (problem(('kind = "cvar"', "#")), "risk: has no kind; use expectation, cvar"),
    "risk is a word": (
        {"problem.toml": 'discount = 0.9\nstart = 0\nrisk = "cvar"'},
        "line 3: risk: input should be a valid dictionary",
    ),
    "radius missing": (problem(('"cvar"', '"kl-ball"'), ("level = 0.9", "")), "risk.radius: is missing"),
    "mixture": (
        problem(
            ('kind = "cvar"', 'kind = "mixture"'), ("level = 0.9", "parts = [{share = 0.5, risk = {kind = 'cvar'}}]")
        ),
        "risk: the weights of a Mixture must be >= 0 and sum to 1, got [0.5]",
    ),
    "step 0": (
        problem(('"sample-average"', '"brpg"\nstep = 0.0')),
        "solver.step: input should be greater than 0, got 0.0",
    ),
    "half an iteration": (problem(("iterations = 300", "iterations = 0.5")), "solver.iterations: input should be a"),
    "solver's kind": (
        problem(('"sample-average"', '"sample-averge"')),
        "solver: kind 'sample-averge' is unknown; did you mean 'sample-average'?",
    ),
    "solver's kind a number": (problem(('"sample-average"', "3")), "solver: kind '3' is unknown; use"),
    "misspelt key of the solver": (
        problem(("samples = 128", "sampels = 128")),
        "unknown key 'sampels'; did you mean 'samples'? in [solver]",
    ),
    "key of another solver": (
        problem(("samples = 128", "step = 0.5")),
        "unknown key 'step'; it is for kind = \"brpg\" in [solver]",
    ),
    "key of the default solver": (
        problem(('"sample-average"', '"brpg"\nlargest = 500')),
        "unknown key 'largest'; it is for kind = \"sample-average\" in [solver]",
    ),
    "largest below the first": (
        problem(("samples = 128", "largest = 100")),
        "solver: SampleAverage largest is 100, below samples, which is 128; lower samples, too",
    ),
    "negative seed": (problem(("seed = 0", "seed = -1")), "seed: input should be greater than or equal to 0, got -1"),
    "prior 0": (problem(('kind = "pooled"', "prior = 0.0")), "posterior.prior: input should be greater than 0"),
    "no state": (problem(('states = ["new", "used", "worn", "broken"]', "states = []")), "no state is declared"),
    "state twice": (problem(('"used", "worn"', '"worn", "worn"')), "state 'worn' is declared twice"),
    "state with control characters": (problem(('"used", ', '"us\\u001b[31med", ')), "cannot be printed"),
    "unknown start": (
        problem(('start = "new"', 'start = "mew"')),
        "start: state 'mew' is not declared; did you mean 'new'?",
    ),
    "start sums to 0.9": (problem(('start = "new"', "start = { new = 0.5, used = 0.4 }")), "sum to 0.9, not to 1"),
    "start below 0": (problem(('start = "new"', "start = [1.5, -0.5, 0, 0]")), "state used a probability below 0"),
    "start too short": (problem(('start = "new"', "start = [1.0]")), "start has 1 probabilities for 4 states"),
    "terminal is left": (
        problem(("seed = 0", 'seed = 0\nterminal = ["worn"]')),
        "state worn is called terminal, but the log",
    ),
    "options without family": (problem(("seed = 0", "seed = 0\noptions = {a = 1}")), "no family is named"),
    "family not trusted": ({"problem.toml": 'family = "os:getcwd"'}, "only with --trust"),
    "family not a name": ({"problem.toml": 'family = "os.getcwd()"'}, "family is written module:function"),
    "grid too small": (problem(("[solver]", "[layout]\ngrid = [1, 3]\n[solver]")), "does not hold the 4 states"),
    "directions": (problem(("[solver]", '[layout]\ndirections = ["up"]\n[solver]')), "one for each of the 3 actions"),
    "too many states": (
        problem(('states = ["new", "used", "worn", "broken"]', "states = 3000000")),
        "states: input should",
    ),
    "too much memory": (
        {
            "problem.toml": 'states = 2000000\nactions = 1000\ndiscount = 0.9\nstart = 0\nposterior.support = "all"\n'
            "[data]\ndefault_cost = 1.0"
        },
        "of memory, and",
    ),
    # the log
    "no log": ({"log.csv": None}, "log.csv: there is no such file\n"),
    "misspelt log": (problem(('"log.csv"', '"lgo.csv"')), "lgo.csv: there is no such file; did you mean 'log.csv'?"),
    "log is a folder": (problem(('"log.csv"', '"folder.csv"')) | {"folder.csv/x": ""}, "folder.csv: is not a file"),
    "empty log": ({"log.csv": ""}, "log.csv: is empty"),
    "log with no row": ({"log.csv": "state,action,next_state\n"}, "log.csv: the log has no row"),
    "all counts 0": ({"log.csv": "state,action,next_state,count\nnew,run,new,0\n"}, "every count of the log is 0"),
    "missing column": (log(("next_state", "next")), "column 'next_state' is missing; the columns are 'state'"),
    "misspelt column": (log(("next_state", "nextstate")), "column 'next_state' is missing; is it 'nextstate'?"),
    "column twice": (log(("count", "state")), "column 'state' appears twice"),
    "unknown state": (
        log(("used,run,used", "usd,run,used")),
        "log.csv, row 5: state 'usd' is not declared; did you mean 'used'?",
    ),
    "unknown action": (
        log(("worn,run,worn", "worn,rnu,worn")),
        "row 10: action 'rnu' is not declared; did you mean 'run'?",
    ),
    "unknown next state": (
        log(("new,run,used", "new,run,gone")),
        "row 2: next_state 'gone' is not declared; there are new",
    ),
    "empty next state": (log(("used,run,used", "used,run,")), "row 5: next_state is empty; give a name or a number"),
    "empty state": (log(("used,run,used", ",run,used")), "row 5: state is empty; give a name or a number"),
    "negative count": (log(("used,9", "used,-9")), "log.csv, row 5: count -9 is negative"),
    "fractional count": (log(("used,9", "used,0.5")), "row 5: count 0.5 is not a whole number"),
    "nan count": (log(("used,9", "used,nan")), "row 5: count nan is not a finite number"),
    "infinite count": (log(("used,9", "used,inf")), "row 5: count inf is not a finite number"),
    "text count": (log(("used,9", "used,nine")), "log.csv, row 5: count 'nine' is not a number"),
    "no count": (log(("used,9", "used,")), "row 5: count is empty"),
    "huge count": (log(("used,9", "used,1e300")), "row 5: count 1e+300 is too large"),
    "ragged": (log(("used,9", "used,9,9")), "log.csv, row 5: 5 cells where the header has 4"),
    "latin 1": ({"log.csv": LOG.encode().replace(b"used,run,used", b"us\xe9d,run,used")}, "is not UTF-8 text"),
    "parquet named csv": ({"log.csv": b"PAR1" + b"\x00" * 100}, "is named as CSV but is a Parquet file"),
    "gzip named csv": ({"log.csv": b"\x1f\x8b" + b"\x00" * 100}, "is named as CSV but is compressed by gzip"),
    "zip named csv": ({"log.csv": b"PK\x03\x04" + b"\x00" * 100}, "is a zip archive or a spreadsheet"),
    "binary csv": ({"log.csv": b"state,\x00action"}, "is named as CSV but holds binary data"),
    "json named csv": ({"log.csv": '{"state": "new"}\n'}, "is named as CSV but holds JSON"),
    "csv named json": (other_log("log.jsonl", LOG), "is named as JSON lines but its first line is not a JSON object"),
    "csv named parquet": (other_log("log.parquet", LOG), "is named as Parquet but does not begin like one"),
    "cut parquet": (other_log("log.parquet", b"PAR1" + b"\x01" * 50), "log.parquet: declares a footer"),
    "csv named tsv": (other_log("log.tsv", LOG), "log.tsv: looks like CSV"),
    "tsv named csv": ({"log.csv": LOG.replace(",", "\t")}, "log.csv: looks like TSV"),
    "spreadsheet": (other_log("log.xlsx", "x"), "log.xlsx: is a spreadsheet; open it and export it as CSV"),
    "bad json": (
        other_log("log.jsonl", '{"state": "new", \n'),
        "log.jsonl, row 1: is not an object that ends on its line",
    ),
    "json without a column": (
        other_log("log.jsonl", '{"state": "new", "action": "run"}\n'),
        "column 'next_state' is missing",
    ),
    "json null": (
        other_log("log.jsonl", '{"state": null, "action": "run", "next_state": "new"}\n'),
        "row 1: state is empty",
    ),
    "json of two kinds": (
        other_log("log.jsonl", '{"state": "new", "action": "run", "next_state": "new"}\n' + '{"state": 1}\n'),
        "log.jsonl: cannot be read as JSON lines",
    ),
    "nested json": (
        other_log("log.jsonl", '{"state": [1], "action": "run", "next_state": "new"}\n'),
        "not names or numbers",
    ),
    # the costs
    "no costs": (problem(('costs = "costs.csv"', "#")), "there are no costs; give data.costs"),
    "cost missing": (
        costs(("worn,run,1.5\n", "")),
        "no cost for state worn, action run, which can be reached; give one",
    ),
    "costs missing": (costs(("worn,run,1.5\n", ""), ("worn,service,4\n", "")), "(nor for 1 more)"),
    "cost nan": (costs(("worn,run,1.5", "worn,run,nan")), "costs.csv, row 7: cost nan is not a finite number"),
    "cost text": (costs(("worn,run,1.5", "worn,run,dear")), "costs.csv, row 7: cost 'dear' is not a number"),
    "cost too large": (costs(("worn,run,1.5", "worn,run,1e200")), "row 7: cost 1e+200 is too large"),
    "cost twice": (costs(("worn,service,4", "worn,run,4")), "costs.csv, row 8: repeats row 7"),
    "cost of an unknown state": (
        costs(("worn,run", "warn,run")),
        "row 7: state 'warn' is not declared; did you mean 'worn'?",
    ),
    "cost table unknown": (
        problem(('costs = "costs.csv"', "costs = {new = {rnu = 1}}")),
        "data.costs: action 'rnu' is not declared; did you mean 'run'?",
    ),
    "cost table text": (
        problem(('costs = "costs.csv"', "costs = {new = {run = 'x'}}")),
        "data.costs.new.run: input should be",
    ),
    # successors, targets
    "pooled with a pseudo-count": (problem(('kind = "pooled"', "prior = 1.0")), 'set kind = "dirichlet"'),
    "pooled where the log led": (problem(('"all"', '"observed"')), 'set kind = "dirichlet"'),
    "listed without lists": (problem(('"all"', '"listed"')), "give successors"),
    "lists without listed": (problem(('"all"', '"observed"\nsuccessors = "s.csv"')), 'set support = "listed"'),
    "not listed": (
        problem(('"all"', '"listed"' + LISTED)) | {"successors.csv": "state,action,next_state\nnew,run,new\n"},
        "the log goes from state new, action run to state used, which posterior.successors does not list",
    ),
    "pair without list": (
        problem(('"all"', '"listed"' + LISTED), ('transitions = "log.csv"', ""))
        | {"successors.csv": "state,action,next_state\nnew,run,new\n"},
        "lists none for state new, action service, which can be reached (nor for 1 more)",
    ),
    "rule without support": (problem(('"all"', '"observed"\nrule = "adjacent"')), 'set support = "rule"'),
    "support without rule": (problem(('"all"', '"rule"')), 'support = "rule" needs rule; give rule'),
    "unknown rule": (problem(('"all"', '"rule"\nrule = "adjcent"')), "did you mean 'adjacent'?"),
    "rule below 0": (
        problem(('"all"', '"rule"\nrule = {forward = -1}')),
        "posterior.rule.forward: input should be greater than or equal to 0, got -1",
    ),
    "unknown key of a rule": (
        problem(('"all"', '"rule"\nrule = {froward = 1}')),
        "unknown key 'froward'; did you mean 'forward'? in [posterior.rule]",
    ),
    "rule for axes that there are not": (
        problem(('"all"', '"rule"\nrule = {forward = [1, 0]}')),
        "posterior.rule: forward has 2 numbers for the one axis of the states",
    ),
    "rule for no action": (
        problem(('"all"', '"rule"\nrule = {actions = {rnu = "adjacent"}}')),
        "posterior.rule.actions: action 'rnu' is not declared; did you mean 'run'?",
    ),
    "rule with an unknown state": (
        problem(('"all"', '"rule"\nrule = {forward = 1, also = ["borken"]}')),
        "posterior.rule.also: state 'borken' is not declared; did you mean 'broken'?",
    ),
    "rule that the log breaks": (
        problem(('"all"', '"rule"\nrule = "adjacent"')),
        "the log goes from state worn, action replace to state new, which posterior.rule does not allow; loosen it",
    ),
    "rule that leaves nothing": (
        problem(
            ('"all"', '"rule"\nrule = {back = 0, only = ["new"]}'),
            ('transitions = "log.csv"', ""),
            ('start = "new"', 'start = "used"'),
        ),
        "posterior.rule allows none for state used, action run, which can be reached (nor for 2 more)",
    ),
    "entered, by the log": (
        problem(('"all"', '"all"\nnever_entered = ["new"]')),
        "the log leads to state new, which posterior.never_entered names",
    ),
    "entered, by the lists": (
        problem(('"all"', '"listed"\nnever_entered = ["new"]' + LISTED), ('transitions = "log.csv"', ""))
        | {"successors.csv": "state,action,next_state\nnew,run,new\n"},
        "posterior.successors leads to state new, which posterior.never_entered names",
    ),
    "nothing is entered": (
        problem(('"all"', '"all"\nnever_entered = ["new", "used", "worn", "broken"]'), ('transitions = "log.csv"', "")),
        "posterior.never_entered names every state",
    ),
    "rule and family": (
        {"problem.toml": 'family = "a:b"\n[posterior]\nsupport = "rule"\nrule = "adjacent"'},
        "the family brings its own posterior.rule; remove it",
    ),
    "target sums to 2": (
        problem(("[solver]", '[loss]\nkind = "imitation"\ntarget = "target.csv"\n[solver]'))
        | {"target.csv": "state,probability\nnew,1\nused,1\n"},
        "the probabilities sum to 2, not to 1",
    ),
    "target below 0": (
        problem(("[solver]", '[loss]\nkind = "imitation"\ntarget = "target.csv"\n[solver]'))
        | {"target.csv": "state,probability\nnew,1.5\nused,-0.5\n"},
        "row 2: probability -0.5 is below 0",
    ),
}


def write(folder, files):
    for name, content in ({"problem.toml": PROBLEM, "log.csv": LOG, "costs.csv": COSTS} | files).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / "problem.toml"


def refuse(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.stderr.startswith("error: "), result.stderr
    assert result.stderr.count("\n") == 1, "a refusal is one line"
    assert len(result.stderr) < 600
    return result.stderr


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_with_a_message(name, tmp_path):
    files, message = REFUSED[name]
    path = write(tmp_path, files)
    before = snapshot(tmp_path)
    said = refuse("check", path)
    assert message in said
    if name != "no such file":
        # The same refusal by the command that would write, which has then written nothing.
        again = refuse("solve", path, "--out", tmp_path / "out")
        assert without_memory(again) == without_memory(said)
    assert snapshot(tmp_path) == before


def without_memory(message):
    """How much memory is free changes from one moment to the next."""
    return re.sub(r"[\d.]+ GiB are", "GiB are", message)


def snapshot(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_corpus_is_large_enough():
    assert len(REFUSED) >= 40


def test_a_parquet_log_with_bad_types_is_refused(tmp_path):
    path = write(tmp_path, problem(('"log.csv"', '"log.parquet"')))
    for column, message in (
        (pa.array([1.5]), "state 1.5 is neither a name nor a whole number"),
        (pa.array([None], pa.string()), "row 1: state is empty"),
        (pa.array([{"a": 1}]), "not names or numbers"),
        (pa.array([b"new"]), "state holds binary values, not names or numbers"),
    ):
        table = pa.table({"state": column, "action": pa.array(["run"]), "next_state": pa.array(["new"])})
        parquet.write_table(table, tmp_path / "log.parquet")
        assert message in refuse("check", path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("state,action,probability\nnew,run,1\n", "state used has no row (nor have 2 more states)"),
        ("state,action\nnew,run\nused,run\n", "state worn has no row (nor has 1 more state)"),
        ("state,acton\nnew,run\n", "column 'action' is missing; is it 'acton'? The columns are 'state', 'acton'\n"),
        (
            "state,action\nnew,run\nused,run\nworn,run\nbroken,run\nnew,service\n",
            "state new has probabilities that sum to 2",
        ),
        ("state,action,probability\nnew,run,0.9\nused,run,1\nworn,run,1\nbroken,run,1\n", "sum to 0.9, not to 1"),
        ("state,action,probability\nnew,run,-1\n", "row 1: probability -1 lies outside [0, 1]"),
        ("state,action,probability\nnew,run,1\nnew,run,1\n", "row 2: repeats row 1"),
        ("state,action,probability\nnew,rum,1\n", "row 1: action 'rum' is not declared; did you mean 'run'?"),
        ("state,probability\nnew,1\n", "column 'action' is missing"),
    ],
    ids=range(9),
)
def test_a_bad_policy_is_refused(text, message, tmp_path):
    path = write(tmp_path, {"mine.csv": text})
    assert message in refuse("evaluate", tmp_path / "mine.csv", path)


def test_an_output_folder_that_holds_something_is_refused(tmp_path):
    path = write(tmp_path, {"run/solution.json": "{}", "file": "x"})
    assert "holds another run (solution.json)" in refuse("solve", path, "--out", tmp_path / "run")
    assert "is not a folder" in refuse("solve", path, "--out", tmp_path / "file")
    assert "is there already" in refuse("init", tmp_path)
    if os.geteuid():
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "cannot be written to" in refuse("solve", path, "--out", tmp_path / "locked")


@pytest.mark.parametrize("command", [("continue",), ("report",), ("compare",)])
def test_a_folder_without_a_run_is_refused(command, tmp_path):
    assert "there is no such folder" in refuse(*command, tmp_path / "nowhere")
    assert "holds no run" in refuse(*command, tmp_path)
    for content in (b"", b"x" * 100, b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ", b"\xff" * 64):
        (tmp_path / "checkpoint.safetensors").write_bytes(content)
        (tmp_path / "report.safetensors").write_bytes(content)
        assert "holds no run; there is no manifest.json in it" in refuse(*command, tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("cvr:0.9", "there is no risk 'cvr'; did you mean 'cvar'?"),
        ("cvar:high", "'high' is not a number; write it like cvar:0.9"),
        ("worst-case:1", "worst-case takes no number"),
        ("cvar:1", "risk.level: input should be less than 1"),
        ("cvar:nan", "risk.level: input should be a finite number"),
    ],
)
def test_a_bad_risk_on_the_command_line_is_refused(words, message, tmp_path):
    said = refuse("solve", write(tmp_path, {}), "--risk", words, "--out", tmp_path / "out")
    assert message in said and "--risk" in said and ", line" not in said
    assert not Path(tmp_path / "out").exists()


def test_an_option_that_the_problem_refuses_is_named(tmp_path):
    path = write(tmp_path, {})
    said = refuse("solve", path, "--seed", 2**63, "--out", tmp_path / "out")
    assert (
        f"{path}, with seed set over what it says (--seed, or changes= in Python): seed: input should be less than"
        in said
    )


def test_a_key_without_an_option_names_none(tmp_path):
    with pytest.raises(pr.InputError, match=r"with risk\.level set over what it says \(changes= in Python\)"):
        pr.read_problem(write(tmp_path, {}), changes={"risk.level": 2.0})
