/*
 * test_links_command.c - `dpbench links`: its document and its tables on this machine, and with
 * devices that a plugin of the tests' has (tests/plugins/device_copies.c) under a driver of the
 * tests' (tests/fakes). What it measures is test_links.c's.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/link_rows.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/traces.h"

static const double deadline_s = 100;

static void run(struct command *command, int exit_code, const char *arguments)
{
    dpbench_ends(command, deadline_s, exit_code, "links %s", arguments);
}

TEST(test_this_machine)
{
    struct command command;
    run(&command, 0, "--window 20us --max 5MB --json --output links.json");
    const json_t *links = command.json;
    assert_non_null(links);
    assert_string_equal(json_text_at(links, "schema"), "dpbench.links/1");
    assert_string_equal(json_text_at(links, "status"), "ok");
    json_t *file = own_json(json_load_file("links.json", 0, NULL));
    assert_true(json_equal(file, links));
    assert_true(json_number_at(links, "topology.cores") >= 1);
    assert_true(json_number_at(links, "topology.nodes.0.memory_bytes") > 1e6);
    assert_true(json_array_size(json_at(links, "topology.pci")) < 65);
    size_t n = 7; /* 4 MiB is the last */
    assert_true(json_number_at(links, "memory.0.threads") == 1);
    expect_rates(json_at(links, "memory.0.read"), n);
    expect_rates(json_at(links, "memory.0.copy"), n);
    expect_rates(json_at(links, "loopback.rate"), n);
    assert_true(json_number_at(links, "loopback.latency_s.median") > 1e-7);
    if (json_number_at(links, "machine.usable_cores") > 1) {
        assert_true(json_number_at(links, "cores.latency.0.latency_s.median") > 1e-9);
        expect_rates(json_at(links, "cores.rate.0.rate"), n);
        assert_true(json_number_at(links, "memory.1.threads") > 1);
    } else {
        assert_int_equal(json_array_size(json_at(links, "cores.latency")), 0);
    }
}

/* Only what was asked for; for people. */
TEST(test_parts)
{
    struct command command;
    run(&command, 0, "topology loopback --window 20us --max 64KiB");
    assert_null(command.json);
    expect_part(command.out, "topology: ");
    expect_part(command.out, "node 0: ");
    expect_part(command.out, "loopback: TCP");
    expect_part(command.out, "   64 KiB");
    assert_null(strstr(command.out, "256 KiB"));
    assert_null(strstr(command.out, "memory:"));
    assert_null(strstr(command.out, "devices"));
    run(&command, 0, "topology --json");
    assert_null(json_at(command.json, "memory"));
    assert_null(json_at(command.json, "devices"));
}

/* The namespace's loopback is down. */
TEST(test_a_part_fails)
{
    struct command command;
    struct started started;
    line_start(&started, NULL,
               "/usr/bin/unshare -rn %s/dpbench links loopback devices --window 20us --max 1KiB "
               "--json",
               build_directory());
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 1);
    assert_string_equal(json_text_at(command.json, "failed.0.part"), "loopback");
    expect_part(json_text_at(command.json, "failed.0.error"), "loopback: connect: ");
    assert_string_equal(json_text_at(command.json, "error"),
                        json_text_at(command.json, "failed.0.error"));
    assert_true(json_number_at(links_of(command.json, "copies"), "host.0.device") == 0);
}

static const char *nvml = "nvml_before"; /* of tests/fakes */

/* `format`: --json, or a part again. */
static void with_driver(struct command *command, const char *max, const char *format,
                        const char *more)
{
    char path[4096];
    struct started started;
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s/tests/fakes/%s", build_directory(), nvml);
    dpbench_start(&started, WORDS(path, "COPIES_PEERS=1", more),
                  "links devices --window 20us --max %s %s", max, format);
    command_finish(&started, command, deadline_s);
    if (command->exit_code != 0)
        fail_msg("exit %d: %s", command->exit_code, command->err);
}

TEST(test_devices)
{
    struct command command;
    with_driver(&command, "1MiB", "--json", "FAKE_NVML_LINKS=18");
    const json_t *copies = links_of(command.json, "copies");
    assert_true(json_is_null(json_at(copies, "missing")));
    assert_string_equal(json_text_at(copies, "devices.1.name"), "Copier 1");
    assert_string_equal(json_text_at(copies, "devices.1.pci_address"), "0000:3d:00.0");
    assert_true(json_number_at(copies, "devices.0.memory_bytes") == 3. * 1024 * 1024 * 1024);
    assert_true(json_number_at(copies, "devices.0.driver.sm_mhz.now") == 1980);
    assert_true(json_number_at(copies, "devices.0.driver.sm_mhz.application") == 1830);
    assert_true(json_number_at(copies, "devices.1.driver.memory_mhz.maximal") == 3202);
    assert_string_equal(json_text_at(copies, "devices.0.driver.reasons.0"), "idle");
    assert_string_equal(json_text_at(copies, "devices.0.paths.0"), "X");
    assert_string_equal(json_text_at(copies, "devices.0.paths.1"), "NV18");
    assert_string_equal(json_text_at(copies, "devices.1.paths.0"), "NV18");
    assert_int_equal(json_array_size(json_at(copies, "host")), 4);
    assert_string_equal(json_text_at(copies, "host.0.memory"), "pinned");
    assert_string_equal(json_text_at(copies, "host.1.memory"), "pageable");
    size_t n = 6;
    expect_rates(json_at(copies, "host.0.to_device"), n);
    expect_rates(json_at(copies, "host.0.from_device"), n);
    expect_rates(json_at(copies, "host.0.both"), n);
    expect_rates(json_at(copies, "host.1.to_device"), n);
    assert_int_equal(json_array_size(json_at(copies, "host.1.both")), 0);
    static const char *const ways[] = {"within", "peer", "staged", "within"};
    assert_int_equal(json_array_size(json_at(copies, "pairs")), 4);
    for (int i = 0; i < 4; i++) {
        char path[32];
        snprintf(path, sizeof path, "pairs.%d", i);
        const json_t *pair = json_at(copies, path);
        assert_string_equal(json_text_at(pair, "way"), ways[i]);
        assert_true(json_is_true(json_at(pair, "possible")));
        expect_rates(json_at(pair, "one_way"), n);
        if (json_number_at(pair, "from") != json_number_at(pair, "to"))
            expect_rates(json_at(pair, "both"), n);
    }
}

/* As the driver names the ways, and where it does not, as hwloc does: not here. */
TEST(test_ways)
{
    static const struct {
        const char *setting, *path;
    } cases[] = {{"FAKE_NVML_LEVEL=10", "PIX"}, {"FAKE_NVML_LEVEL=20", "PXB"},
                 {"FAKE_NVML_LEVEL=30", "PHB"}, {"FAKE_NVML_LEVEL=40", "NODE"},
                 {"FAKE_NVML_LEVEL=50", "SYS"}, {"FAKE_NVML_LINKS=4", "NV4"},
                 {"FAKE_NVML_LEVEL=999", "?"},  {"FAKE_NVML_INIT=9", "?"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct command command;
        with_driver(&command, "1KiB", "--json", cases[i].setting);
        const json_t *copies = links_of(command.json, "copies");
        assert_string_equal(json_text_at(copies, "devices.0.paths.1"), cases[i].path);
    }
}

TEST(test_tables)
{
    struct command command;
    with_driver(&command, "1KiB", "devices", "FAKE_NVML_LEVEL=40");
    expect_part(command.out, "devices of copies\n");
    expect_part(command.out, "  1: Copier 1 at 0000:3d:00.0, 3.0 GiB, SM 1980 MHz (maximal 1980, "
                             "application 1830), memory 3201 MHz (maximal 3202, application 3200)");
    nvml = "nvml";
    with_driver(&command, "1KiB", "devices", "FAKE_NVML_LEVEL=40");
    nvml = "nvml_before";
    expect_part(command.out, "SM 1980 MHz (maximal 1980), memory 3201 MHz (maximal 3202)");
    expect_part(command.out, "         0     X  NODE\n         1  NODE     X\n");
    expect_part(command.out, "H>0 pinned");
    expect_part(command.out, "0<>1 staged");
    /* The driver is not there, and the devices are no peers. */
    run(&command, 0, "devices --window 20us --max 1KiB");
    expect_part(command.out, "0 and 1 cannot reach each other's memory (peer)");
    setenv("COPIES_MISSING", "there is no driver", 1);
    run(&command, 0, "devices --window 20us --max 1KiB");
    expect_part(command.out, "devices of copies: none: there is no driver\n");
    unsetenv("COPIES_MISSING");
}

TEST(test_refusals)
{
    static const struct {
        const char *arguments, *text;
    } cases[] = {{"memroy",
                  "'memroy' is none of topology, memory, cores, loopback, devices; did you mean "
                  "'memory'?"},
                 {"--window 5", "--window is a time from 10us to 10s, not '5'"},
                 {"--window 1ns", "--window is a time from 10us to 10s, not '1ns'"},
                 {"--window", "--window needs a time"},
                 {"--max 1B", "--max is a size from 1KiB to 256MiB, not '1B'"},
                 {"--max", "--max needs a size"},
                 {"--output", "--output needs a file"},
                 {"topology --output -", "--output takes a file"},
                 {"topology --output a --output b", "--output is given twice"},
                 {"--fast", "unknown option '--fast'"},
                 {"topology --output /proc/none/x.json", "/proc/none"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct command command;
        run(&command, 2, cases[i].arguments);
        expect_part(command.err, cases[i].text);
        assert_string_equal(command.out, "");
    }
}

/* What was measured until then is written. */
TEST(test_interrupted)
{
    struct command command;
    struct started started;
    dpbench_start(&started, NULL, "links memory devices --window 100ms --json");
    while (traces_threads(started.pid) < 2 && now_s() - started.began_s < deadline_s)
        usleep(1000); /* it measures when there is more than one */
    kill(started.pid, SIGTERM);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 143);
    assert_string_equal(json_text_at(command.json, "status"), "interrupted");
    assert_true(json_is_array(json_at(command.json, "memory")));
    assert_null(json_at(command.json, "devices"));
}

TEST_MAIN(sandbox_setup, sandbox_teardown)
