/* traces.c - see traces.h. */
#include "lib/traces.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/test.h"

static const double machine_s = 5.0; /* until what another process has just made is mapped */

void traces_adopt_orphans(void)
{
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
}

static void add(struct traces *traces, const char *kind, const char *name)
{
    traces->names = realloc(traces->names, (traces->n + 2) * sizeof *traces->names);
    assert_non_null(traces->names);
    assert_true(asprintf(&traces->names[traces->n++], "%s %s", kind, name) > 0);
    traces->names[traces->n] = NULL;
}

static struct traces *walking; /* nftw has no context */

static int add_file(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind;
    if (place->level > 0)
        add(walking, "file", path);
    return 0;
}

static void add_files(struct traces *traces, const char *directory)
{
    walking = traces;
    nftw(directory, add_file, 16, FTW_PHYS);
}

/* Jobs make files there. A directory is a temporary one of another program, as of `make fuzz`. */
static void add_shared_memory(struct traces *traces)
{
    DIR *memory = opendir("/dev/shm");
    char path[300];
    for (const struct dirent *entry; memory && (entry = readdir(memory));) {
        snprintf(path, sizeof path, "/dev/shm/%s", entry->d_name);
        if (entry->d_type != DT_DIR)
            add(traces, "shared memory", path);
    }
    if (memory)
        closedir(memory);
}

static void release(void *names)
{
    for (char **name = names; name && *name; name++)
        free(*name);
    free(names);
}

void traces_take(struct traces *before, const char *directory)
{
    *before = (struct traces){.directory = directory};
    add_files(before, directory);
    add_shared_memory(before);
    own_memory(before->names, release);
}

static bool has(const struct traces *traces, const char *name)
{
    for (size_t i = 0; i < traces->n; i++)
        if (strcmp(traces->names[i], name) == 0)
            return true;
    return false;
}

/* Whether a process has the file at the end of `name` in its memory. */
static bool is_mapped(const char *name)
{
    char path[300], line[1024];
    bool found = false;
    const char *file = strchr(name, '/');
    DIR *processes = opendir("/proc");
    for (const struct dirent *entry; processes && !found && (entry = readdir(processes));) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%s/maps", entry->d_name);
        FILE *maps = fopen(path, "re");
        while (maps && !found && fgets(line, sizeof line, maps))
            found = strstr(line, file) != NULL;
        if (maps)
            fclose(maps);
    }
    if (processes)
        closedir(processes);
    return found;
}

/* The first of `now` that was not there before; of shared memory only what no process has. */
static const char *first_new(const struct traces *before, const struct traces *now, bool shared)
{
    for (size_t i = 0; i < now->n; i++)
        if (!has(before, now->names[i]) && (!shared || !is_mapped(now->names[i])))
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

/* By looks of 2 ms: where the machine has no time for this process, the others get as many. */
static void expect_no_process(const char *title, double gone_s)
{
    for (double left_s = gone_s;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid < 0 && errno == ECHILD)
            return;
        if (pid == 0 && (left_s -= 0.002) < 0) {
            kill_children();
            fail_msg("%s: a process is left after %g s", title, gone_s);
        }
        if (pid == 0)
            usleep(2000);
    }
}

/* No process of the test lives any more: shared memory that is mapped is another's. */
static void expect_no_shared_memory(const struct traces *before, const char *title)
{
    double until_s = now_s() + machine_s;
    for (bool clean = false; !clean; usleep(clean ? 0 : 20000)) {
        struct traces now = {0};
        add_shared_memory(&now);
        const char *left = first_new(before, &now, true);
        if (left && now_s() > until_s)
            fail_msg("%s: left behind: %s", title, left);
        clean = left == NULL;
        release(now.names);
    }
}

void traces_expect_none(const struct traces *before, const char *title, double gone_s)
{
    struct traces files = {0};
    expect_no_process(title, gone_s);
    add_files(&files, before->directory);
    if (first_new(before, &files, false))
        fail_msg("%s: left behind: %s", title, first_new(before, &files, false));
    release(files.names);
    expect_no_shared_memory(before, title);
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
