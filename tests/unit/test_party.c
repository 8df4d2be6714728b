/*
 * test_party.c - the head ends before the job begins: of the other parts, which are silent, rank
 * 1's says so, once, and none where the head has said why.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/party_parts.h"
#include "lib/test.h"
#include "world/pmix.h"

/* What a part does. Its exit code is that of the job. */
static void be_part(uint32_t rank, int head, int err)
{
    char hosts[3][DPB_HOST_BYTES] = {"one", "two", "three"}, number[12];
    uint32_t machines[3] = {0};
    struct link link = {.fd = head};
    struct dpb_party party = {.rank = rank,
                              .n_ranks = 3,
                              .hosts = hosts,
                              .machines = machines,
                              .parent = getppid(),
                              .starter = getppid(),
                              .timeout_ns = INT64_C(20000000000),
                              .links = &link};
    int exit_code = -1;
    snprintf(number, sizeof number, "%u", rank);
    setenv("PMIX_NAMESPACE", "test", 1);
    setenv(DPB_PMIX_RANK_VARIABLE, number, 1);
    dup2(err, STDERR_FILENO);
    dpb_party_hush();
    dpb_party_agree(&party, DPB_OK, "{}", 3, &exit_code);
    _exit(exit_code);
}

/* The head tells this part that it has refused the job, unless `refused` is DPB_OK, and ends. */
static int leave_part(uint32_t rank, dpb_status refused, char said[1024])
{
    int pair[2], err[2], status;
    size_t n = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(pipe(err), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(pair[0]);
        be_part(rank, pair[1], err[1]);
    }
    close(pair[1]);
    close(err[1]);
    struct link links[3] = {{.fd = -1}, {.fd = -1}, {.fd = -1}};
    struct dpb_party head = {.n_ranks = 3, .links = links};
    links[rank].fd = pair[0];
    if (refused != DPB_OK)
        party_refuse(&head, refused);
    link_close(&links[rank]);
    for (ssize_t got; (got = read(err[0], said + n, 1023 - n)) > 0;)
        n += (size_t)got;
    said[n] = '\0';
    close(err[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(test_head_ends)
{
    char said[1024];
    assert_int_equal(leave_part(1, DPB_OK, said), 1);
    assert_string_equal(said,
                        "error: the launcher of rank 0 (one) has ended before the job began\n");
    assert_int_equal(leave_part(2, DPB_OK, said), 1);
    assert_string_equal(said, "");
}

TEST(test_head_refuses)
{
    char said[1024];
    for (uint32_t rank = 1; rank < 3; rank++) {
        assert_int_equal(leave_part(rank, DPB_USAGE, said), 2);
        assert_string_equal(said, "");
    }
}

TEST_MAIN(NULL, NULL)
