/*
 * test_party.c - the head ends, or says nothing, before the job begins: of the other parts, which
 * are silent, rank 1's says so, once; and none where the head has said why, where all are being
 * ended, or that was stopped itself. And where ranks are, as the head has heard it.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/deadline.h"
#include "launch/agree.h"
#include "launch/keeper.h"
#include "launch/part_messages.h"
#include "launch/stall.h"
#include "lib/says.h"
#include "lib/test.h"
#include "world/pmix.h"

/* The head ends, after it has refused the job; or it ends all parts a little later; or nothing
 * comes, and this part was stopped meanwhile. */
enum what { ENDS, REFUSES, ENDS_ALL, IS_SILENT, IS_SILENT_TO_STOPPED };

/* What a part does. Its exit code is that of the job. */
static void be_part(uint32_t rank, enum what what, int head, int err)
{
    const bool silent = what == IS_SILENT || what == IS_SILENT_TO_STOPPED;
    char hosts[3][DPB_HOST_BYTES] = {"one", "two", "three"}, number[12];
    uint32_t machines[3] = {0}, parts[3] = {0, 1, 2};
    struct dpb_channel channel = {.fd = head};
    struct dpb_party party = {.part = rank,
                              .n_parts = 3,
                              .n_ranks = 3,
                              .parts = parts,
                              .hosts = hosts,
                              .machines = machines,
                              .parent = getppid(),
                              .starter = getppid(),
                              .timeout_ns = INT64_C(1000000) * (silent ? 100 : 20000),
                              .channels = &channel};
    int exit_code = -1;
    snprintf(number, sizeof number, "%u", rank);
    setenv("PMIX_NAMESPACE", "test", 1);
    setenv(DPB_PMIX_RANK_VARIABLE, number, 1);
    dup2(err, STDERR_FILENO);
    dpb_party_hush();
    if (what == IS_SILENT_TO_STOPPED)
        raise(SIGCONT);
    dpb_party_agree(&party, DPB_OK, "{}", 3, &exit_code);
    _exit(exit_code);
}

static int leave_part(uint32_t rank, enum what what, char said[1024])
{
    int pair[2], err[2], status;
    size_t n = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(pipe(err), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(pair[0]);
        be_part(rank, what, pair[1], err[1]);
    }
    close(pair[1]);
    close(err[1]);
    struct dpb_channel channels[3] = {{.fd = -1}, {.fd = -1}, {.fd = -1}};
    struct dpb_party head = {.n_parts = 3, .channels = channels};
    channels[rank].fd = pair[0];
    if (what == REFUSES)
        dpb_party_refuse(&head, DPB_USAGE);
    if (what <= ENDS_ALL)
        dpb_channel_close(&channels[rank]);
    if (what == ENDS_ALL) {
        usleep(20000);
        kill(pid, SIGTERM);
    }
    for (ssize_t got; (got = read(err[0], said + n, 1023 - n)) > 0;)
        n += (size_t)got;
    said[n] = '\0';
    close(err[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (what > ENDS_ALL)
        dpb_channel_close(&channels[rank]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(test_head_ends)
{
    char said[1024];
    assert_int_equal(leave_part(1, ENDS, said), 1);
    assert_string_equal(said,
                        "error: the launcher of rank 0 (one) has ended before the job began\n");
    assert_int_equal(leave_part(2, ENDS, said), 1);
    assert_string_equal(said, "");
}

TEST(test_head_refuses)
{
    char said[1024];
    for (uint32_t rank = 1; rank < 3; rank++) {
        assert_int_equal(leave_part(rank, REFUSES, said), 2);
        assert_string_equal(said, "");
    }
}

TEST(test_all_are_ended)
{
    char said[1024] = "not tried";
    for (int i = 0; i < 5 && said[0]; i++) /* this process may be late itself */
        leave_part(1, ENDS_ALL, said);
    assert_string_equal(said, "");
}

TEST(test_head_is_silent)
{
    char said[1024];
    leave_part(1, IS_SILENT, said);
    expect_part(said, "error: the launcher of rank 0 (one) has not begun the job within 0.1 s");
    leave_part(1, IS_SILENT_TO_STOPPED, said);
    assert_string_equal(said, "the launcher of rank 1 was stopped while it waited\n");
}

/* ---- hearts ---------------------------------------------------------------------------------- */

enum { MS = 1000000 };

static void set_place(struct dpb_board *board, uint32_t rank, uint64_t step, uint32_t peer,
                      int64_t since_ns)
{
    struct dpb_status_page *page = dpb_board_page(board, rank);
    snprintf(page->phase, sizeof page->phase, "wait_peer");
    page->step = step;
    page->bucket = UINT64_MAX;
    page->peer = peer;
    page->since_ns = since_ns;
}

/* Rank 1's machine was heard `silent_ms` ago, 0.5 s into its wait for rank 0; rank 0 has waited for
 * it, and its deadline has passed or not. */
static void draw_silent(int64_t silent_ms, bool passed, struct dpb_stall_watch *watch)
{
    char hosts[2][DPB_HOST_BYTES] = {"one", "two"};
    struct dpb_channel channels[2] = {{.fd = -1}, {.fd = -1}};
    uint32_t parts[2] = {0, 1};
    struct dpb_party party = {.n_ranks = 2, .hosts = hosts, .channels = channels, .parts = parts};
    const struct dpb_job job = {.n_workers = 2, .timeout_ns = INT64_C(3000) * MS, .party = &party};
    struct dpb_process processes[2] = {{.pid = getpid(), .running = true},
                                       {.remote = true, .running = true}};
    struct dpb_job_run run = {.job = &job, .n_ranks = 2, .processes = processes};
    assert_int_equal(dpb_board_create(2, 4096, &run.board), DPB_OK);
    assert_int_equal(dpb_store_server_create(2, &run.server), DPB_OK);
    const int64_t now_ns = dpb_now_ns();
    processes[1].heard_ns = dpb_ran_ns() - silent_ms * MS;
    set_place(run.board, 0, 413, 1, now_ns - silent_ms * MS);
    set_place(run.board, 1, 412, 0, now_ns - (silent_ms + 500) * MS);
    dpb_board_page(run.board, 0)->status = passed ? DPB_TIMEOUT : DPB_OK;
    dpb_board_page(run.board, 0)->failed_ns = passed ? now_ns : 0;
    dpb_stall_keep_picture(&run);
    *watch = run.stalls;
    dpb_store_server_destroy(run.server);
    dpb_board_destroy(run.board);
}

TEST(test_silent_machine_is_named)
{
    struct dpb_stall_watch watch;
    /* This process may be late itself. */
    for (int passed = 0; passed < 2; passed++) {
        watch.late[0] = '\0';
        for (int i = 0; i < 5 && !strstr(watch.late, "since 0.5 s"); i++)
            draw_silent(10000, passed, &watch);
        expect_part(watch.late, "rank 1 is late: two was last heard 10.");
        expect_part(watch.late, " s ago, then in phase 'wait_peer' of step 412, for rank 0, since "
                                "0.5 s");
        expect_part(watch.picture, "rank 1 (worker, pid 0): two was last heard 10.");
    }
    /* Its heart beats: it waits, and nobody is known to be late. */
    for (int i = 0; i < 5 && !strstr(watch.picture, "; heard 0."); i++)
        draw_silent(DPB_PART_PING_NS / MS / 2, true, &watch);
    expect_part(watch.picture, "rank 1 (worker, pid 0): phase 'wait_peer' of step 412");
    expect_part(watch.picture, "; heard 0.");
    assert_string_equal(watch.late, "");
}

/* ---- the keeper ------------------------------------------------------------------------------ */

/* As before Linux 5.9. Linked with --wrap=close_range. */
int __wrap_close_range(unsigned first, unsigned last, int flags);

int __wrap_close_range(unsigned first, unsigned last, int flags)
{
    (void)first, (void)last, (void)flags;
    errno = ENOSYS;
    return -1;
}

/* When a launcher is killed, its keeper ends the channel to the head. */
TEST(test_launcher_is_killed)
{
    int channel[2], said[2];
    pid_t keeper_pid = 0;
    char byte;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel), 0);
    assert_int_equal(pipe(said), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct dpb_keeper keeper;
        if (dpb_keeper_start(said[1], channel[1], &keeper) != DPB_OK ||
            write(said[1], &keeper.pid, sizeof keeper.pid) != sizeof keeper.pid)
            _exit(1);
        raise(SIGKILL);
    }
    close(channel[1]);
    close(said[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(read(said[0], &keeper_pid, sizeof keeper_pid), sizeof keeper_pid);
    struct pollfd ended = {.fd = channel[0], .events = POLLIN};
    const bool ends = poll(&ended, 1, 5000) == 1 && recv(channel[0], &byte, 1, 0) == 0;
    kill(keeper_pid, SIGKILL); /* it holds the other end, too, and would stay a while */
    close(channel[0]);
    assert_true(ends);
    close(said[0]);
}

TEST_MAIN(NULL, NULL)
