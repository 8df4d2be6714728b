/*
 * test_cli_results.c - what dpbench says of results that are there: report, compare, gate.
 */
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/cli.h"

/* The table of a file is the one that its run printed. */
TEST(test_report)
{
    struct command run_, report;
    run(&run_, 0, RUN "--output kept.json");
    run(&report, 0, "report kept.json");
    if (strncmp(report.out, "kept.json\n", 10) != 0)
        fail_msg("'%s'", report.out);
    assert_string_equal(report.out + 10, run_.out);
    json_t *document = own_json(json_load_file("kept.json", 0, NULL));
    double most = 0;
    for (size_t i = 0; i < 2; i++)
        most = fmax(most, json_number_at(json_array_get(json_at(document, "ranks"), i),
                                         "peak_memory_bytes"));
    char memory[64];
    snprintf(memory, sizeof memory, "memory        at most %.1f MB in a process", most / 1e6);
    assert_true(most > 1e6);
    expect_part(report.out, memory);
    /* As that of a rank that failed before it had planned. */
    json_object_set_new(json_at(document, "strategy"), "consistency", json_string(""));
    json_object_set_new(json_at(document, "ranks.0"), "threads", json_integer(0));
    json_dump_file(document, "early.json", 0);
    run(&report, 0, "report early.json");
    expect_line(report.out, "^  strategy      shm$");
    expect_line(report.out, "^  processes     2 workers on reference$");
    run(&run_, 0, RUN "sweep.comm.name=shm,replicated sweep.repeats=1 --output sweep-kept.json");
    run(&report, 0, "report --each kept.json sweep-kept.json");
    expect_part(report.out, run_.out);
    EXPECT_ERROR(2, "report base.ini", "is it a result of dpbench?");
    EXPECT_ERROR(2, "report", "which results?");
}

/* As editors of other systems save them. */
TEST(test_texts_of_documents)
{
    struct command command;
    char text[65536] = "\xef\xbb\xbf";
    run(&command, 0, RUN "--output plain.json");
    FILE *file = fopen("plain.json", "r");
    assert_non_null(file);
    const size_t n = fread(text + 3, 1, sizeof text - 4, file);
    fclose(file);
    assert_in_range(n, 1000, sizeof text - 5);
    sandbox_write("marked.json", "%s", text);
    run(&command, 0, "compare marked.json plain.json");
    sandbox_write("wide.json", "\xff\xfe{");
    EXPECT_ERROR(2, "report wide.json", "wide.json: it is UTF-16; save it as UTF-8");
    sandbox_write("twice.json", "{\"schema\": \"dpbench.result/1\", \"schema\": \"x\"}");
    EXPECT_ERROR(2, "report twice.json", "twice.json: duplicate object key");
    EXPECT_ERROR(2, "predict plain.json --comm twice.json",
                 "--comm twice.json: duplicate object key");
}

/* The document of a cell that was refused has a reason, and no measurement. */
TEST(test_report_of_a_refused_run)
{
    struct command command;
    run(&command, 0,
        RUN "sweep.run.precision=fp32,bf16 sweep.repeats=1 sweep.retry_disturbed=0 "
            "sweep.skip_refused=yes --output refused.json");
    run(&command, 0, "report refused.json.runs/000002.json");
    expect_line(command.out, "^run: nothing was measured$");
    expect_line(command.out, "^  status        refused: .* does not compute in bf16");
    assert_null(strstr(command.out, "nan"));
    assert_null(strstr(command.out, "?"));
    /* Given twice, the run counts once. */
    run(&command, 0, "report refused.json refused.json");
    EXPECT_WORDS("report", command.out, "2 runs were given twice",
                 "refused: command line: device 'reference' does not");
}

TEST(test_compare)
{
    static const struct {
        const char *arguments, *words[3];
        int exit_code;
    } rows[] = {
        {"compare", {"which two results?"}, 2},
        {"compare a.json", {"which two results?"}, 2},
        {"compare a.json b.json a.json", {"'a.json' is a third"}, 2},
        {"compare a.json b.json --threshold", {"--threshold needs a number of percent"}, 2},
        {"compare a.json b.json --threshold -1", {"--threshold needs a number of percent"}, 2},
        {"compare a.json b.json --threshold x%", {"--threshold needs a number of percent"}, 2},
        {"compare a.json b.json --jsn", {"unknown option '--jsn'"}, 2},
        {"compare a.json base.ini", {"base.ini: ", "is it a result"}, 2},
        {"compare a.json none.json", {"none.json"}, 2},
        {"compare a.json b.json --undecided pass", {"nothing is judged without --threshold"}, 2},
        {"compare a.json b.json --accuracy x", {"--accuracy needs a number of points"}, 2},
        {"compare a.json b.json --accuracy 1", {"--accuracy: a.json and b.json have no cell"}, 2},
        {"compare a.json a.json --bytes 1", {""}, 0},
        {"compare a.json b.json --undecided", {"--undecided needs pass"}, 2},
        {"compare a.json a.json --threshold 0", {"not shown whether a.json is slower"}, 6},
        {"compare a.json a.json --threshold 50", {""}, 0},
        {"compare a.json slow.json --threshold 5%", {"slow.json is slower than a.json"}, 4},
        {"compare slow.json a.json --threshold 5", {""}, 0},
        {"compare a.json slow.json", {""}, 0},
        {"compare short.json slow.json --threshold 5", {"not shown whether slow.json"}, 6},
        {"compare short.json slow.json --threshold 5 --undecided pass", {""}, 0},
        {"compare short.json slow.json --threshold 5 --undecided fail", {"--undecided fail"}, 4},
        {"compare a.json slow.json --require-same machine,config", {""}, 0},
        {"compare a.json b.json --require-same machine,config",
         {"a.json and b.json differ in config.comm.name"},
         2},
        {"compare a.json b.json --require-same host", {"takes a list of config, inputs"}, 2},
    };
    struct command command;
    run(&command, 0, RUN "--output a.json --json");
    assert_int_equal(json_dump_file(command.json, "short.json", 0), 0); /* too short to conclude */
    json_t *timing = json_at(command.json, "timing"), *steps = json_array();
    for (int i = 0; i < 100; i++)
        json_array_append_new(steps, json_integer(990 + i * 37 % 21));
    json_object_update_new(timing, json_pack("{s:b, s:b, s:b, s:o}", "too_short", 0, "gated", 0,
                                             "steady", 1, "step_ns", steps));
    json_object_set_new(json_at(command.json, "load"), "disturbed", json_false());
    json_object_set_new(json_at(command.json, "world"), "oversubscribed", json_false());
    json_t *slow = own_json(json_deep_copy(command.json));
    json_object_set_new(json_at(command.json, "timing.samples_per_s"), "mean", json_real(1000));
    json_object_set_new(json_at(slow, "timing.samples_per_s"), "mean", json_real(500));
    assert_int_equal(json_dump_file(command.json, "a.json", 0), 0);
    assert_int_equal(json_dump_file(slow, "slow.json", 0), 0);
    run(&command, 0, RUN "comm.name=replicated --output b.json");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, rows[i].exit_code, rows[i].words, "%s", rows[i].arguments);
    run(&command, 0, "compare a.json b.json");
    EXPECT_WORDS("compare", command.out, "different (A | B):", "\"shm\" | \"replicated\"",
                 "A samples/s", "comm_exposed", "different times");
    run(&command, 6, "compare short.json slow.json --threshold 5");
    EXPECT_WORDS("compare", command.out, "no conclusion", "A was timed too shortly",
                 "undecided: it is not shown whether B is slower by 5 %");
    run(&command, 0, "compare a.json slow.json --json");
    assert_string_equal(json_text_at(command.json, "schema"), "dpbench.compare/1");
    assert_string_equal(json_text_at(command.json, "rows.0.verdict"), "slower");
    assert_int_equal(json_array_size(json_at(command.json, "differences")), 0);
}

/* Two builds by turns: the same program is no regression, one whose steps take longer is. */
TEST(test_gate)
{
    static const struct {
        const char *arguments, *words[3];
        int exit_code;
    } rows[] = {
        {"gate -c base.ini", {"which other build?"}, 2},
        {"gate --base none -c base.ini", {"--base none: No such file"}, 2},
        {"gate --base ./slow -c base.ini --repeats 1", {"--repeats needs a number from 2"}, 2},
        {"gate --base ./slow -c base.ini --budget 5", {"--budget needs a time with its unit"}, 2},
        {"gate --base ./slow -c base.ini --budget 5s", {"judged without --threshold"}, 2},
        {"gate --base ./slow -c base.ini --threshold 5 --undecided no", {"needs pass"}, 2},
        {"gate --base ./slow", {"which experiment?"}, 2},
        {"gate --base ./broken -c base.ini", {"out of order", "base: ./broken ended with exit"}, 3},
        {"gate --base ./mute -c base.ini", {"./mute printed no result"}, 1},
    };
    struct command command;
    char script[4600];
    sandbox_write("broken", "#!/bin/sh\necho out of order >&2\nexit 3\n");
    sandbox_write("mute", "#!/bin/sh\n");
    /* Other rates, as their results say. */
    static const char *const mean[] = {"0.1", "9999999."}, *const names[] = {"slow", "fast"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(script, sizeof script,
                 "#!/bin/sh\n%s/dpbench \"$@\" | sed -E -e '/\"samples_per_s\"/,/\\}/"
                 "s/\"mean\": [0-9]+\\./\"mean\": %s/' "
                 "-e '/\"samples_per_s\": \\[/,/\\]/s/^( *)[0-9]+\\./\\1%s/'\n",
                 build_directory(), mean[i], mean[i]);
        sandbox_write(names[i], script);
        assert_int_equal(chmod(names[i], 0777), 0);
    }
    snprintf(script, sizeof script,
             "#!/bin/sh\n[ \"$1\" = help ] && exit 2\nexec %s/dpbench \"$@\"\n", build_directory());
    sandbox_write("old", script);
    assert_int_equal(chmod("broken", 0777) | chmod("mute", 0777) | chmod("old", 0777), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, rows[i].exit_code, rows[i].words, "%s", rows[i].arguments);
    run(&command, 0,
        "gate --base ./slow -c base.ini run.workers=1 run.seconds=0.3 --repeats 2 --threshold 5 "
        "--undecided pass "
        "--output g.json");
    EXPECT_WORDS("gate", command.err, "[1/2] base: 0.", " samples/s, this: ", "2 pairs");
    expect_part(command.out, "A and B ran side by side");
    json_t *document = own_json(json_load_file("g.json", 0, NULL));
    assert_true(json_number_at(document, "rows.0.ratio") > 100);
    assert_int_equal(json_number_at(document, "rows.0.a.repeats"), 2);
    assert_true(json_is_true(json_at(document, "side_by_side")));
    expect_part(json_text_at(document, "b.file"), "/dpbench"); /* no link of this process */
    /* No second pair fits. One pair shows nothing. */
    run(&command, 6, "gate --base ./slow -c base.ini --threshold 5 --budget 1ms --json");
    EXPECT_WORDS("gate", command.err, "[1/30] base: ", "1 pair; --budget is spent");
    assert_string_equal(json_text_at(command.json, "judgement"), "undecided");
    /* One after the other: a build that knows no turns, and as the user asks for. */
    static const char *const alone[][2] = {{"./old", "./old is of a time without turns"},
                                           {"./slow sweep.turns=no", "sweep.turns = no"}};
    for (size_t i = 0; i < 2; i++) {
        dpbench(&command, deadline_s, "gate -c base.ini --repeats 2 --base %s", alone[i][0]);
        assert_int_equal(command.exit_code, 0);
        EXPECT_WORDS("gate", command.err, "one after the other: ", alone[i][1], "[2/2] this: ");
        expect_part(command.out, "A and B ran by turns");
    }
    run(&command, 0,
        "gate --base ./slow -c base.ini sweep.comm.name=shm,replicated --repeats 2 --json");
    assert_int_equal(json_array_size(json_at(command.json, "rows")), 2);
    EXPECT_ERROR(1,
                 "gate --base ./slow -c base.ini sweep.optimizer.learning_rate=0.01,1000000 "
                 "--repeats 2 --json",
                 "not finite", "a cell of either build");
    EXPECT_ERROR(1, "gate --base ./slow -c base.ini optimizer.learning_rate=1000000 --repeats 2",
                 "not finite", "base: ./slow ended with exit code 1");
}

/* No byte of a result reaches the terminal but as text. */
TEST(test_hostile_text)
{
    static const char hostile[] = "red\x1b[31m\nforged: line\xc2\x9b";
    struct command command;
    run(&command, 0, RUN "--json --output first.json");
    json_t *document = own_json(json_deep_copy(command.json));
    json_object_set_new(json_at(document, "strategy"), "name", json_string(hostile));
    json_object_set_new(json_at(document, "model"), "name", json_string(hostile));
    json_array_append_new(json_object_get(document, "warnings"),
                          json_pack("{s:s, s:s}", "code", hostile, "text", hostile));
    json_object_set_new(json_at(document, "machine"), hostile, json_string(hostile));
    assert_int_equal(json_dump_file(document, "hostile.json", 0), 0);
    static const char *const lines[] = {"report hostile.json", "compare first.json hostile.json",
                                        "rerun hostile.json run.results=", "check -c hostile.ini",
                                        "-c base.ini data.name=idx data.path=./\x1b[31m"};
    sandbox_write("hostile.ini", "[run]\nsteps = 2\n[model]\nname = \x1b[31mred\n");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        dpbench(&command, deadline_s, "%s", lines[i]);
        if (strpbrk(command.out, "\x1b") || strpbrk(command.err, "\x1b") ||
            strstr(command.out, "\nforged: line") || strstr(command.err, "\nforged: line"))
            fail_msg("%s: %s%s", lines[i], command.out, command.err);
    }
    run(&command, 0, "report hostile.json");
    expect_part(command.out, "red\\x1b[31m\\x0aforged: line\\x9b");
}

TEST_MAIN(set_up, sandbox_teardown)
