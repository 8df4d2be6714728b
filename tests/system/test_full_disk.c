/* needs: threads */
/*
 * test_full_disk.c - a disk that fills up, and a process that is killed, while a result or a
 * checkpoint is written: the file that was there stays whole, and no part of a new one is left.
 */
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"

static const double deadline_s = 40.0;

/* What comes of `command` in a shell of its own: for what must be set up before dpbench. */
static void shell(struct command *command, const char *script)
{
    const char *const arguments[] = {"/bin/sh", "-c", script, NULL};
    command_run(command, deadline_s, arguments, NULL);
}

/* Whether this process may mount: then it is done in a namespace that ends with the shell. */
static bool can_mount(void)
{
    struct command command;
    shell(&command, "mkdir -p probe && unshare -m mount -t tmpfs -o size=64k none probe");
    bool can = command.exit_code == 0;
    return can;
}

struct row {
    const char *title, *arguments, *words[3];
};

static const struct row rows[] = {
    {"result",
     "run.steps=1500 --output small/old",
     {"small/old", "the file cannot be written", "No space"}},
    {"checkpoint",
     "model.name=lenet run.steps=1 run.warmup_steps=0 checkpoint.save=small/old",
     {"small/old", "writing the checkpoint failed: No space", "an older file is unchanged"}},
};

/* A file system of 64 KiB with a file on it. Where nobody may mount, test_result_files and
 * test_checkpoint do the like by a limit on the size of files. */
TEST(test_full)
{
    if (!can_mount())
        skip();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        char script[1024];
        snprintf(
            script, sizeof script,
            "mkdir -p small && exec unshare -m sh -c 'mount -t tmpfs -o size=64k none small && "
            "echo whole >small/old && $DPB_BUILD/dpbench -c base.ini %s; "
            "echo code $? in \"$(cat small/old)\" \"$(ls -A small | wc -l)\" file'",
            rows[i].arguments);
        shell(&command, script);
        if (!strstr(command.out, "code 1 in whole 1 file"))
            fail_msg("%s: %s\n%s", rows[i].title, command.out, command.err);
        EXPECT_WORDS(rows[i].title, faults_only_error(rows[i].title, &command), rows[i].words[0],
                     rows[i].words[1], rows[i].words[2]);
    }
}

/* ---- killed while it writes ---------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* A file in `saved` whose name ends so; false: none. */
static bool find(const char *end, char name[256])
{
    DIR *entries = opendir("saved");
    bool found = false;
    for (struct dirent *entry; entries && !found && (entry = readdir(entries));) {
        found = ends_with(entry->d_name, end);
        if (found)
            snprintf(name, 256, "%s", entry->d_name);
    }
    if (entries)
        closedir(entries);
    return found;
}

/* Kills the writer as soon as it has begun the first file after one that is whole; `watch`: of
 * `saved`. */
static void kill_writer(const struct started *started, int watch)
{
    _Alignas(struct inotify_event) char events[4096];
    struct pollfd wait = {.fd = watch, .events = POLLIN};
    bool whole = false;
    while (poll(&wait, 1, (int)(deadline_s * 1000)) > 0) {
        const ssize_t n = read(watch, events, sizeof events);
        const struct inotify_event *event;
        for (ssize_t at = 0; at < n; at += (ssize_t)(sizeof *event + event->len)) {
            event = (const void *)(events + at);
            whole = whole || (event->mask & IN_MOVED_TO);
            if (!whole || !(event->mask & IN_CREATE) || !ends_with(event->name, ".tmp"))
                continue;
            const char *dot = strstr(event->name, ".safetensors.");
            assert_non_null(dot);
            kill((pid_t)atoi(dot + strlen(".safetensors.")), SIGKILL);
            return;
        }
    }
    kill(-started->pid, SIGKILL);
    fail_msg("no checkpoint was written within %g s", deadline_s);
}

TEST(test_killed_writer)
{
    struct started started;
    struct command command;
    char name[256];
    assert_int_equal(system("mkdir saved"), 0);
    const int watch = inotify_init1(IN_CLOEXEC);
    assert_true(inotify_add_watch(watch, "saved", IN_CREATE | IN_MOVED_TO) >= 0);
    faults_start_long(&started, "model.name=lenet comm.name=shm eval.every=0 run.warmup_steps=0 "
                                "checkpoint.save=saved/net.safetensors checkpoint.every=1");
    kill_writer(&started, watch);
    close(watch);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 1);
    faults_expect_failed("killed writer", &command);
    if (find(".tmp", name))
        fail_msg("%s is left", name);
    /* What bears its name is whole. */
    assert_true(find("-step1.safetensors", name));
    dpbench_ends(&command, deadline_s, 0,
                 "check -c base.ini model.name=lenet checkpoint.load=saved/net-step1.safetensors");
}

TEST_MAIN(faults_setup, sandbox_teardown)
