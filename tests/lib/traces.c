/* traces.c - see traces.h. */
#include "lib/traces.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/command.h"

static const double machine_s = 5.0; /* for what others on the machine have made meanwhile */

void traces_adopt_orphans(void)
{
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
}

static void add(struct traces *traces, const char *kind, const char *name)
{
    traces->names = realloc(traces->names, (traces->n + 1) * sizeof *traces->names);
    assert_non_null(traces->names);
    assert_true(asprintf(&traces->names[traces->n++], "%s %s", kind, name) > 0);
}

/* nftw has no context. */
static struct traces *walking;
static const char *walking_kind;

static int add_file(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind;
    if (place->level > 0)
        add(walking, walking_kind, path);
    return 0;
}

static void add_files(struct traces *traces, const char *kind, const char *directory)
{
    walking = traces;
    walking_kind = kind;
    nftw(directory, add_file, 16, FTW_PHYS);
}

static void add_sockets(struct traces *traces)
{
    char line[512];
    FILE *file = fopen("/proc/net/unix", "re");
    while (file && fgets(line, sizeof line, file)) {
        const char *name = strchr(line, '@');
        if (!name)
            continue;
        line[strcspn(line, "\n")] = '\0';
        add(traces, "socket", name);
    }
    if (file)
        fclose(file);
}

static void take_machine(struct traces *traces)
{
    add_files(traces, "shared memory", "/dev/shm");
    add_sockets(traces);
}

void traces_take(struct traces *before, const char *directory)
{
    *before = (struct traces){.directory = directory};
    add_files(before, "file", directory);
    take_machine(before);
}

void traces_free(struct traces *traces)
{
    for (size_t i = 0; i < traces->n; i++)
        free(traces->names[i]);
    free(traces->names);
    *traces = (struct traces){0};
}

static bool has(const struct traces *traces, const char *name)
{
    for (size_t i = 0; i < traces->n; i++)
        if (strcmp(traces->names[i], name) == 0)
            return true;
    return false;
}

/* The first of `now` that was not there before, but was among `suspects` (NULL: all). */
static const char *first_new(const struct traces *before, const struct traces *suspects,
                             const struct traces *now)
{
    for (size_t i = 0; i < now->n; i++)
        if (!has(before, now->names[i]) && (!suspects || has(suspects, now->names[i])))
            return now->names[i];
    return NULL;
}

/* What is left must not outlive the test's failure. */
static void kill_children(void)
{
    char path[64];
    int pid;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%d", &pid) == 1)
        kill(pid, SIGKILL);
    if (file)
        fclose(file);
}

static void expect_no_process(const char *title, double gone_s)
{
    double until_s = now_s() + gone_s;
    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid < 0 && errno == ECHILD)
            return;
        if (pid == 0 && now_s() > until_s) {
            kill_children();
            fail_msg("%s: a process is left after %g s", title, gone_s);
        }
        if (pid == 0)
            usleep(2000);
    }
}

void traces_expect_none(const struct traces *before, const char *title, double gone_s)
{
    struct traces files = {0}, suspects = {0};
    expect_no_process(title, gone_s);
    add_files(&files, "file", before->directory);
    if (first_new(before, NULL, &files))
        fail_msg("%s: left behind: %s", title, first_new(before, NULL, &files));
    traces_free(&files);
    take_machine(&suspects);
    double until_s = now_s() + machine_s;
    for (bool clean = false; !clean; usleep(clean ? 0 : 20000)) {
        struct traces now = {0};
        take_machine(&now);
        const char *left = first_new(before, &suspects, &now);
        if (left && now_s() > until_s)
            fail_msg("%s: left behind: %s", title, left);
        clean = left == NULL;
        traces_free(&now);
    }
    traces_free(&suspects);
}

size_t traces_threads(pid_t pid)
{
    char path[64];
    size_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    for (const struct dirent *task; tasks && (task = readdir(tasks));)
        n += task->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return n;
}
