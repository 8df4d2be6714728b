/* test_profile_command.c - `dpbench profile`: profiles made from a run, a rate, a roofline, a list
 * of tensors and traces say what those say; what its command line refuses. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"

static const double deadline_s = 60;

/* One step. The duration of a range and the category of another are the caller's. */
static const char trace[] =
    "{'traceEvents': ["
    "{'ph':'X','cat':'user_annotation','name':'dpbench.forward','ts':1,'dur':100},"
    "{'ph':'X','cat':'user_annotation','name':'dpbench.backward','ts':110,'dur':200},"
    "{'ph':'X','cat':'user_annotation','name':'dpbench.ready w 20','ts':150.5,'dur':%s},"
    "{'ph':'i','cat':'user_annotation','name':'dpbench.ready b 4','ts':310},"
    "{'ph':'X','cat':'%s','name':'dpbench.update','ts':320,'dur':12}]}";

static const char chakra[] =
    "{'id':'1','name':'l_FWD','type':'COMP_NODE','durationMicros':'100'}"
    "{'id':2,'name':'l_WG','type':4,'data_deps':[1],'duration_micros':200}\n"
    "{'id':3,'name':'sum','type':'COMM_COLL_NODE','data_deps':[2],'attr':["
    "{'name':'comm_type','int64_val':0},{'name':'comm_size','int64_val':4096}]}\n"
    "{'id':4,'name':'op','type':'COMP_NODE','ctrl_deps':[2],'duration_micros':20}\n"
    "{'id':6,'name':'kernel','type':'COMP_NODE','ctrl_deps':[4],'duration_micros':30}\n"
    "{'id':5,'name':'update','type':'COMP_NODE','data_deps':[3,6],'duration_micros':70}\n";

/* A file of JSON, where ' stands for ". */
static void write_json(const char *path, const char *text)
{
    char quoted[2048];
    snprintf(quoted, sizeof quoted, "%s", text);
    for (char *at = quoted; *at != '\0'; at++)
        *at = *at == '\'' ? '"' : *at;
    sandbox_write(path, "%s", quoted);
}

static void write_trace(const char *path, const char *duration, const char *category)
{
    char text[1024];
    snprintf(text, sizeof text, trace, duration, category);
    write_json(path, text);
}

/* one.json with another value at a place. */
static void write_other(const char *path, const char *object, const char *key, json_t *value)
{
    json_t *one = json_load_file("one.json", 0, NULL);
    json_object_set_new(json_at(one, object), key, value);
    json_dump_file(one, path, 0);
    json_decref(one);
}

static int set_up(void **state)
{
    int result = sandbox_setup(state);
    struct command command;
    static const char *const runs[] = {
        "comm.name=independent run.workers=1 --output one.json",
        "comm.name=shm run.workers=2 --output two.json",
        "comm.name=independent run.workers=1 run.accumulate=2 --output parts.json"};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        dpbench(&command, deadline_s,
                "-c /dev/null run.steps=20 run.steady_limit_s=0 run.results= model.name=tiny "
                "device.name=reference %s",
                runs[i]);
        result |= command.exit_code;
    }
    write_other("emulated.json", "config.device.name", "value", json_string("emulated"));
    write_other("unready.json", "timing", "ready", json_null());
    write_other("other.json", "model", "parameters", json_integer(17));
    write_other("short.json", "timing.ready", "elements", json_pack("[i]", 80));
    write_trace("torch.json", "1", "user_annotation");
    write_trace("gpu.json", "1", "gpu_user_annotation");
    write_trace("negative.json", "-1", "user_annotation");
    sandbox_write("empty.json", "{\"traceEvents\": []}\n");
    sandbox_write("tensors.txt", "# backward\n- 0 1000\nw 200 3000 ; a comment\r\n\r\nb 10 0\n");
    sandbox_write("wrong.txt", "w 200 3000\nb 10\n");
    write_json("chakra.json", chakra);
    return result;
}

static void make(struct command *command, const char *arguments)
{
    dpbench_ends(command, deadline_s, 0, "profile from %s", arguments);
    assert_non_null(command->json);
    assert_string_equal(json_text_at(command->json, "schema"), "dpbench.profile/1");
}

/* The names of the tensors as the model has them, last node first. */
static void expect_tiny(const json_t *profile)
{
    static const char *const names[] = {"fc2.weight",   "fc2.bias",   "fc1.weight", "bn3.bias",
                                        "conv3.weight", "bn2.weight", "bn2.bias",   "conv2.weight",
                                        "conv1.weight", "conv1.bias"};
    char path[32];
    assert_int_equal(json_array_size(json_at(profile, "tensors")), 10);
    for (int i = 0; i < 10; i++) {
        snprintf(path, sizeof path, "tensors.%d.name", i);
        assert_string_equal(json_text_at(profile, path), names[i]);
    }
}

TEST(test_from_result)
{
    struct command command, result;
    make(&command, "one.json --accelerator X");
    json_t *one = json_load_file("one.json", 0, NULL);
    assert_non_null(one);
    double step_ns = 0;
    for (int i = 0; i < 20; i++)
        step_ns +=
            json_number_value(json_array_get(json_at(one, "timing.step_ns"), (size_t)i)) / 20;
    const double backward_ns = json_number_at(one, "timing.breakdown_ns.backward");
    const double computing_ns = step_ns - json_number_at(one, "timing.breakdown_ns.optimizer") -
                                json_number_at(one, "timing.breakdown_ns.comm_exposed");
    const double forward_ns = expect_number(&command, "forward_ns");
    assert_true(fabs(forward_ns + expect_number(&command, "backward_ns") - computing_ns) <=
                1); /* each is whole nanoseconds */
    assert_true(fabs(expect_number(&command, "backward_ns") - backward_ns) <= 1);
    expect_tiny(command.json);
    /* The tensor at a frontier has its time. */
    assert_true(json_number_at(one, "timing.ready.elements.0") == 80);
    assert_true(fabs(json_number_at(one, "timing.ready.ns.0") - forward_ns -
                     expect_number(&command, "tensors.1.ready_ns")) <= 1.5);
    assert_true(expect_number(&command, "tensors.2.ready_ns") >
                expect_number(&command, "tensors.1.ready_ns"));
    assert_string_equal(json_text_at(command.json, "kind"), "measured");
    assert_string_equal(json_text_at(command.json, "accelerator"), "X");
    expect_part(json_text_at(command.json, "source"), "one.json");
    expect_line(command.err, "X, tiny \\(measured\\): .* ms a step, .* samples/s, 10 tensors; ");
    json_decref(one);
    make(&result, "one.json");
    assert_true(json_text_at(result.json, "accelerator")[0] != '\0');
}

TEST(test_from_rate)
{
    struct command command;
    make(&command, "--rate 7000/s --model tiny --batch 256 --accelerator H100 --kind published "
                   "--source TABLE --spread 0.02 model.nclass=5");
    const double forward_ns = expect_number(&command, "forward_ns");
    const double step_ns = forward_ns + expect_number(&command, "backward_ns");
    assert_true(fabs(256 / step_ns * 1e9 / 7000 - 1) < 1e-6);
    assert_true(fabs(step_ns / forward_ns - 3) < 1e-6);
    assert_true(expect_number(&command, "spread") == 0.02);
    expect_tiny(command.json);
    assert_true(expect_number(&command, "tensors.9.ready_ns") <= step_ns - forward_ns);
    assert_true(expect_number(&command, "tensors.9.ready_ns") >= 0.99 * (step_ns - forward_ns));
    assert_string_equal(json_text_at(command.json, "kind"), "published");
    assert_string_equal(json_text_at(command.json, "source"), "TABLE");
}

/* First all is bound by multiply-accumulates, then by bytes. */
TEST(test_rooflines)
{
    struct command command;
    make(&command,
         "--flops 1e9 --bandwidth 1e18 --share 0.5 --tensors tensors.txt --batch 10 --model m "
         "--accelerator X --precision bf16");
    /* 2 x 4,000 x 10 FLOP forward at 0.5e9 a second, and twice that backward */
    assert_true(expect_number(&command, "forward_ns") == 160000);
    assert_true(expect_number(&command, "backward_ns") == 320000);
    assert_true(expect_number(&command, "macs_per_sample") == 4000);
    assert_true(expect_number(&command, "tensors.0.ready_ns") == 320000);
    assert_int_equal(json_array_size(json_at(command.json, "tensors")), 2);
    assert_string_equal(json_text_at(command.json, "kind"), "estimated");
    make(&command, "--flops 1e18 --bandwidth 1e6 --share 1 --tensors tensors.txt --batch 10 "
                   "--accelerator X --model two");
    assert_true(expect_number(&command, "backward_ns") == 2 * 840000);
    assert_true(expect_number(&command, "tensors.0.ready_ns") == 2 * 800000);
    assert_string_equal(json_text_at(command.json, "model"), "two");
}

TEST(test_from_traces)
{
    struct command command;
    make(&command, "--torch torch.json --model m --batch 8 --accelerator X");
    assert_true(expect_number(&command, "forward_ns") == 100000);
    assert_true(expect_number(&command, "backward_ns") == 200000);
    assert_true(expect_number(&command, "tensors.0.ready_ns") == 40500);
    assert_true(expect_number(&command, "tensors.1.elements") == 4);
    assert_true(expect_number(&command, "update_elements_per_s") == 2e6);
    make(&command, "--chakra chakra.json --model m --batch 8 --accelerator X");
    assert_true(expect_number(&command, "forward_ns") == 100000);
    assert_true(expect_number(&command, "backward_ns") == 250000);
    assert_true(expect_number(&command, "tensors.0.ready_ns") == 200000);
    assert_true(expect_number(&command, "tensors.0.elements") == 1024);
}

TEST(test_show)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 "profile from --torch torch.json --model m --batch 8 --accelerator X "
                 "--output shown.json");
    assert_string_equal(command.out, "");
    dpbench_ends(&command, deadline_s, 0, "profile show shown.json --json");
    assert_true(expect_number(&command, "forward_ns") == 100000);
    dpbench_ends(&command, deadline_s, 0, "profile show shown.json");
    expect_line(command.out, "^X, m, fp32: measured \\(torch.json\\)$");
    expect_line(command.out, "^step +0.300 ms of 8 samples: forward 0.100, backward 0.200; ");
    expect_line(command.out, "^rate +26667 samples/s$");
    expect_line(command.out, "^ +80 % +0.041 +w$");
    expect_line(command.out, "^ 100 % +0.200 +b$");
}

static const struct refusal {
    const char *arguments, *word;
} refusals[] = {
    {"", "what to do?"},
    {"make one.json", "what to do?"},
    {"from", "from what?"},
    {"from one.json two.json", "'two.json' is a second"},
    {"from none.json", "none.json"},
    {"from two.json", "a profile needs a run of one worker, and this has 2"},
    {"from emulated.json", "an emulation is no measurement"},
    {"from unready.json", "timing.ready is missing"},
    {"from short.json", "timing.ready ends before the last tensor"},
    {"from other.json", "model.parameters is not that of the network"},
    {"from parts.json", "run.accumulate=1"},
    {"from chakra.json", "chakra.json"},
    {"from one.json --batch 4", "--batch cannot be used with a result"},
    {"from one.json model.name=lenet", "settings of the model cannot be used with a result"},
    {"from one.json --output /", "--output"},
    {"from --rate 10 --batch 4 --accelerator X", "--rate needs --model"},
    {"from --rate 10 --batch 4 --model tiny", "--rate needs --accelerator"},
    {"from --rate 10 --batch 4 --model tinny --accelerator X", "tinny"},
    {"from --rate 10 --batch 4 --model tiny --accelerator X model.nope=1", "nope"},
    {"from --rate 10 --batch 4 --model tiny --accelerator X run.steps=1", "'run.steps=1'"},
    {"from --rate 0 --batch 4 --model tiny --accelerator X", "--rate: '0' is no number above 0"},
    {"from --rate 10 --batch 1.5 --model tiny --accelerator X", "'1.5' is no whole number"},
    {"from --rate 10 --batch 4 --model tiny --accelerator X --kind published", "needs --source"},
    {"from --rate 10 --batch 4 --model tiny --accelerator X --kind measured --source S",
     "'measured' is none of estimated, published"},
    {"from --rate 10 --batch 4 --model tiny --accelerator X --precision fp8", "'fp8' is none of"},
    {"from --rate 10 --batch 4 --model tiny --accelerator X --share 0.5", "--share cannot be used"},
    {"from --rate 10 --batch 4 --model tiny --accelerator X --flops 1", "go together"},
    {"from --rate 10 --batch 4 --model m --accelerator X --tensors tensors.txt model.a=1",
     "settings of the model cannot be used with --tensors"},
    {"from --rate 10 --batch 4 --model tiny --accelerator X --spread -0.1", "is no number from 0"},
    {"from --flops 1 --bandwidth 1 --batch 4 --model tiny --accelerator X", "needs --share"},
    {"from --rate 10 --batch 4 --tensors wrong.txt --model m --accelerator X",
     "wrong.txt:2: a line is NAME"},
    {"from --rate 10 --batch 4 --tensors none.txt --model m --accelerator X",
     "none.txt: cannot be read: No such file"},
    {"from --torch torch.json --batch 8 --accelerator X", "--torch needs --model"},
    {"from --torch empty.json --batch 8 --accelerator X --model m", "no range dpbench.forward"},
    {"from --torch negative.json --batch 8 --accelerator X --model m", "has no times ts and dur"},
    {"from --torch torch.json --batch 8 --accelerator X --model m --kind measured", "--kind"},
    {"from --torch gpu.json --batch 8 --accelerator X --model m", "no tensor is ready"},
    {"from --chakra torch.json --batch 8 --accelerator X --model m", "no all-reduce"},
    {"from --rate", "--rate needs a value"},
    {"from --rat 1", "unknown option '--rat'"},
    {"from --rate 1 --rate 2", "--rate is given twice"},
    {"show", "which profile?"},
    {"show one.json", "this is no profile"},
    {"show a.json b.json", "'b.json' is a second"},
    {"show no_such", "no_such"},
};

TEST(test_refusals)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        dpbench_says(deadline_s, 2, WORDS(refusals[i].word), "profile %s", refusals[i].arguments);
}

TEST_MAIN(set_up, sandbox_teardown)
