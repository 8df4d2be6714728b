/*
 * trial.h - runs a job in a launcher of its own and looks at what is left afterwards.
 *
 * The test program is launcher and rank at once: in a rank, TRIAL_MAIN runs the function that the
 * configuration names. Test and ranks share a scratch page.
 */
#ifndef DPB_TESTS_UNIT_TRIAL_H
#define DPB_TESTS_UNIT_TRIAL_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "launch/launch.h"
#include "lib/says.h"
#include "lib/test.h"
#include "world/world.h"

enum { TRIAL_RANKS = 64, TRIAL_DEADLINE_S = 60, TRIAL_ERRORS = 8192 };

struct trial_scratch {
    int32_t pids[TRIAL_RANKS], extra_pid;
    uint32_t n_ready; /* ranks that have begun their function */
    uint64_t numbers[TRIAL_RANKS];
    char text[TRIAL_RANKS][512]; /* a rank's, for the test to read */
    /* by the launcher */
    dpb_status launch_status;
    dpb_status status;
    int exit_code;
    uint32_t culprit;
    char cause[2 * DPB_BOARD_TEXT];
    int n_fds_before, n_fds_after;
    bool children_left;
    double seconds;
};

struct trial {
    const char *name; /* of the rank's function */
    uint32_t n_workers, n_servers;
    const uint32_t *machines; /* of each rank; NULL: one */
    double timeout_s;
    bool survive;
    const char *const *environment;
    void (*act)(struct trial *trial); /* once all ranks are ready; NULL: nothing */
    uint32_t n_jobs;                  /* in a row; 0 is 1 */
    uint32_t most_descriptors;        /* of the launcher, and of each rank; 0: as many as here */
    /* results */
    struct trial_scratch *at;
    pid_t launcher;
    int wait_status;           /* of the launcher */
    char errors[TRIAL_ERRORS]; /* what came on stderr */
};

struct trial_case {
    const char *name;
    dpb_status (*run)(struct trial_scratch *scratch);
};

static inline void trial_sleep_ms(int64_t ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0)
        ;
}

/* Those whose name begins with `prefix`. */
static inline int trial_count_entries(const char *path, const char *prefix)
{
    int n = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;)
        n += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(directory);
    return n;
}

static inline bool trial_alive(pid_t pid)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    const char *state = fgets(line, sizeof line, file) != NULL ? strrchr(line, ')') : NULL;
    fclose(file);
    return state != NULL && state[2] != 'Z' && state[2] != 'X';
}

/* Whether it becomes true within the time. */
static inline bool trial_gone_within(pid_t pid, int64_t ms)
{
    for (; ms > 0 && trial_alive(pid); ms -= 10)
        trial_sleep_ms(10);
    return !trial_alive(pid);
}

/* ---- a rank -------------------------------------------------------------------------------- */

static inline int trial_rank_main(const struct trial_case *cases)
{
    alarm(2 * TRIAL_DEADLINE_S);
    dpb_status status = dpb_world_open();
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    char name[64];
    int fd;
    if (sscanf(dpb_world.config, "%63s %d", name, &fd) != 2)
        return 99;
    struct trial_scratch *scratch =
        mmap(NULL, sizeof *scratch, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (scratch == MAP_FAILED)
        return 98;
    scratch->pids[dpb_world.rank] = (int32_t)getpid();
    __atomic_fetch_add(&scratch->n_ready, 1, __ATOMIC_SEQ_CST);
    while (cases->name != NULL && strcmp(cases->name, name) != 0)
        cases++;
    if (cases->name == NULL)
        return 97;
    status = cases->run(scratch);
    dpb_world_close();
    return dpb_status_exit_code(status);
}

/* The main of a program whose ranks run `cases`, which {NULL} or {0} ends. */
#define TRIAL_MAIN(cases)                  \
    int main(void)                         \
    {                                      \
        if (dpb_world_is_rank())           \
            return trial_rank_main(cases); \
        return test_main(NULL, NULL);      \
    }

/* ---- the launcher -------------------------------------------------------------------------- */

static inline void trial_launch(struct trial *trial, int scratch_fd)
{
    char config[128];
    snprintf(config, sizeof config, "%s %d", trial->name, scratch_fd);
    struct dpb_job job = {.n_workers = trial->n_workers,
                          .survive = trial->survive,
                          .n_servers = trial->n_servers,
                          .machines = trial->machines,
                          .config = config,
                          .journal_bytes = 1 << 16,
                          .environment = trial->environment,
                          .timeout_ns = (int64_t)(trial->timeout_s * 1e9)};
    struct trial_scratch *at = trial->at;
    at->n_fds_before = trial_count_entries("/proc/self/fd", "");
    int64_t begin = dpb_now_ns();
    for (uint32_t i = 0; i < (trial->n_jobs != 0 ? trial->n_jobs : 1); i++) {
        struct dpb_job_outcome outcome = {0};
        at->launch_status = dpb_launch(&job, &outcome);
        at->status = outcome.status;
        at->exit_code = outcome.exit_code;
        at->culprit = outcome.culprit;
        memcpy(at->cause, outcome.cause, sizeof at->cause);
        dpb_board_destroy(outcome.board);
    }
    at->seconds = (double)(dpb_now_ns() - begin) * 1e-9;
    at->n_fds_after = trial_count_entries("/proc/self/fd", "");
    at->children_left = waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD;
}

static inline bool trial_wait_ready(const struct trial *trial)
{
    for (int i = 0; i < 1000; i++) {
        if (__atomic_load_n(&trial->at->n_ready, __ATOMIC_SEQ_CST) ==
            trial->n_workers + trial->n_servers)
            return true;
        trial_sleep_ms(10);
    }
    return false;
}

static inline void trial_unmap(void *scratch)
{
    munmap(scratch, sizeof(struct trial_scratch));
}

/* Runs it and checks that nothing is left: no descriptor, no child, no process. Its shared memory
 * is of memfds, which end with them. */
static inline void trial_run(struct trial *trial)
{
    int memory = memfd_create("trial", 0), errors = memfd_create("errors", MFD_CLOEXEC);
    int fd = fcntl(memory, F_DUPFD, 100); /* inherited by all; out of the way */
    assert_true(fd >= 100 && ftruncate(fd, sizeof *trial->at) == 0);
    close(memory);
    trial->at = mmap(NULL, sizeof *trial->at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(trial->at != MAP_FAILED);
    own_memory(trial->at, trial_unmap);
    fflush(NULL);
    trial->launcher = fork();
    assert_true(trial->launcher >= 0);
    if (trial->launcher == 0) {
        const struct rlimit few = {trial->most_descriptors, trial->most_descriptors};
        dup2(errors, STDERR_FILENO);
        if (trial->most_descriptors > 0)
            setrlimit(RLIMIT_NOFILE, &few);
        trial_launch(trial, fd);
        _exit(trial->at->launch_status == DPB_OK ? trial->at->exit_code : 111);
    }
    if (trial->act != NULL) {
        bool ready = trial_wait_ready(trial);
        if (!ready)
            kill(trial->launcher, SIGKILL);
        assert_true(ready);
        trial->act(trial);
    }
    pid_t ended = 0;
    for (int i = 0; i < TRIAL_DEADLINE_S * 100 && ended == 0; i++) {
        ended = waitpid(trial->launcher, &trial->wait_status, WNOHANG);
        if (ended == 0)
            trial_sleep_ms(10);
    }
    if (ended == 0) {
        kill(trial->launcher, SIGKILL);
        waitpid(trial->launcher, NULL, 0);
        fail_msg("%s: the launcher did not end", trial->name);
    }
    ssize_t n = pread(errors, trial->errors, sizeof trial->errors - 1, 0);
    trial->errors[n > 0 ? n : 0] = '\0';
    close(errors);
    close(fd);
    for (uint32_t rank = 0; rank < TRIAL_RANKS; rank++)
        if (trial->at->pids[rank] != 0)
            assert_true(trial_gone_within(trial->at->pids[rank], 2000));
    if (WIFEXITED(trial->wait_status)) {
        assert_int_equal(trial->at->n_fds_after, trial->at->n_fds_before);
        assert_false(trial->at->children_left);
    }
}

/* ... until it takes `most_s` at most: a busy machine may need another try. */
static inline void trial_run_within(struct trial *trial, double most_s)
{
    enum { TRIES = 5 };
    for (int i = 1;; i++) {
        trial_run(trial);
        if (trial->at->seconds <= most_s)
            return;
        if (i == TRIES)
            fail_msg("%s took %.2f s, not at most %.2f s: %s\n%s", trial->name, trial->at->seconds,
                     most_s, trial->at->cause, trial->errors);
    }
}

/* A trial that has to end well. */
static inline void trial_passes(const char *name, uint32_t n_workers, uint32_t n_servers)
{
    struct trial trial = {
        .name = name, .n_workers = n_workers, .n_servers = n_servers, .timeout_s = 20};
    trial_run(&trial);
    if (!WIFEXITED(trial.wait_status) || trial.at->status != DPB_OK || trial.at->exit_code != 0)
        fail_msg("%s with %u ranks: %s\n%s", name, n_workers + n_servers, trial.at->cause,
                 trial.errors);
}

/* In a rank: what does not hold ends it with a message. */
#define RANK_CHECK(condition)                                                         \
    do {                                                                              \
        if (!(condition))                                                             \
            return dpb_fail(DPB_FAILED, "%s:%d: %s", __FILE__, __LINE__, #condition); \
    } while (0)

/* In a rank: the call fails as it should; its message goes to the test and is forgotten. */
#define RANK_FAILS(scratch, expected, call)                                       \
    do {                                                                          \
        dpb_status rank_status_ = (call);                                         \
        dpb_status rank_first_;                                                   \
        snprintf((scratch)->text[dpb_world.rank], sizeof(scratch)->text[0], "%s", \
                 dpb_first_error(&rank_first_));                                  \
        dpb_first_error_clear();                                                  \
        RANK_CHECK(rank_status_ == (expected) && rank_first_ == (expected));      \
        dpb_board_page(dpb_world.board, dpb_world.rank)->failed_ns = 0;           \
    } while (0)

#endif
