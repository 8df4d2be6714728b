/* needs: verbs */
/*
 * test_verbs.c - strategies over RDMA on a machine without it: what is missing is said by name,
 * before anything is trained; experiments can be written and checked all the same. What it does
 * where there are devices: tests/rdma-vm.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "lib/test.h"
#include "lib/training.h"

static const char no_device[] =
    "this machine has no RDMA device: it needs a card for InfiniBand or "
    "RoCE and its kernel driver, or soft-RoCE";

static void skip_with_devices(void)
{
    DIR *devices = opendir("/sys/class/infiniband");
    if (!devices)
        return;
    closedir(devices);
    print_message("needs a machine without RDMA\n");
    skip();
}

TEST(test_plugins)
{
    struct command command;
    skip_with_devices();
    dpbench_ends(&command, 60, 0, "plugins");
    const char *line = strstr(command.out, "comm     ring_verbs ");
    assert_non_null(line);
    line = strchr(line, '\n') + 1;
    assert_non_null(strstr(line, "cannot run here: "));
    assert_memory_equal(strstr(line, "cannot run here: ") + 17, no_device, sizeof no_device - 1);
    dpbench(&command, 60, "plugins --json");
    size_t i;
    const json_t *row;
    bool found = false;
    json_array_foreach(json_at(command.json, "plugins"), i, row)
    {
        bool own = strcmp(json_text_at(row, "name"), "ring_verbs") == 0;
        found = found || own;
        if (own)
            assert_memory_equal(json_text_at(row, "missing"), no_device, sizeof no_device - 1);
        else if (!json_is_null(json_at(row, "missing"))) /* of a GPU, say */
            assert_null(strstr(json_text_at(row, "missing"), "RDMA"));
    }
    assert_true(found);
}

TEST(test_run)
{
    static const char *const strategies[] = {
        "comm.name=ring_verbs", "comm.name=hierarchical comm.transport=verbs comm.hosts=1+1",
        "comm.name=ps_cpu comm.transport=verbs comm.hosts=1+1",
        "comm.name=ps_cpu comm.transport=verbs run.servers=1 comm.hosts=2+1"};
    skip_with_devices();
    for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++) {
        struct training training;
        train_anyway(&training, "model.name=tiny run.workers=2 %s", strategies[i]);
        assert_int_equal(training.command.exit_code, 2);
        /* A plugin that needs the devices with all of its options is refused before the job. */
        assert_non_null(
            strstr(training.command.err, i == 0 ? "cannot run here: " : "no RDMA here: "));
        assert_non_null(strstr(training.command.err, no_device));
    }
}

TEST(test_options)
{
    static const char text[] = "[comm]\nname = ring_verbs\npoll = perhaps\n";
    struct command command;
    char directory[64], path[80];
    dpbench_ends(&command, 60, 0, "help ring_verbs");
    assert_non_null(strstr(command.out, "comm.gid_index = integer, -1 to 255; default -1"));
    temporary_directory(directory);
    snprintf(path, sizeof path, "%s/any.ini", directory);
    write_file(path, text, sizeof text - 1);
    dpbench_says(60, 2, WORDS("any.ini:3: "), "check -c %s model.name=tiny", path);
    remove_directory(directory);
}

/* Its rings have not run with norms of whole tensors and shards. */
TEST(test_norms)
{
    static const char text[] = "[comm]\nname = ring_verbs\nshard = optimizer\n"
                               "[run]\nworkers = 2\nsteps = 1\n[optimizer]\nclip_norm = 1\n";
    char directory[64], path[80];
    temporary_directory(directory);
    snprintf(path, sizeof path, "%s/any.ini", directory);
    write_file(path, text, sizeof text - 1);
    dpbench_says(60, 2,
                 WORDS("any.ini:8: optimizer.clip_norm needs the norms of whole",
                       "comm 'ring_verbs'", "squares: ", " ring_tcp shm"),
                 "check -c %s model.name=tiny", path);
    remove_directory(directory);
}

TEST_MAIN(training_setup, training_teardown)
