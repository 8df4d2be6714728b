/*
 * test_party.c - the head ends, or says nothing, before the job begins: of the other parts, which
 * are silent, rank 1's says so, once; and none where the head has said why, where all are being
 * ended, or that was stopped itself.
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

#include "launch/keeper.h"
#include "launch/party.h"
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
