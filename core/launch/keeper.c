/* keeper.c - see keeper.h. */
#include "launch/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"

#define STAY_NS INT64_C(15000000000) /* at most: more than the others need to end */

/* Descriptors of the keeper; it has no other ones, and none that its launcher prints to. */
enum { LAUNCHER, LINK, CONNECTION, N_KEPT };

static bool other_side_ended(void)
{
    char words[256];
    ssize_t n = recv(LINK, words, sizeof words, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static void keep(const int kept[N_KEPT])
{
    char byte;
    signal(SIGTERM, SIG_IGN); /* srun sends it to all of a job whose launcher has died */
    signal(SIGINT, SIG_IGN);
    int high[N_KEPT]; /* out of the way of the places to be filled */
    for (int i = 0; i < N_KEPT; i++)
        high[i] = fcntl(kept[i], F_DUPFD, N_KEPT);
    for (int i = 0; i < N_KEPT; i++)
        if (dup2(high[i], i) < 0)
            _exit(1);
    close_range(N_KEPT, ~0U, 0);
    while (read(LAUNCHER, &byte, 1) < 0 && errno == EINTR)
        ;
    shutdown(LINK, SHUT_WR);
    const struct dpb_deadline deadline = dpb_deadline_in(STAY_NS);
    while (!other_side_ended() && !dpb_deadline_passed(deadline))
        poll(&(struct pollfd){.fd = LINK, .events = POLLIN}, 1, 100);
    _exit(0);
}

dpb_status dpb_keeper_start(int pmix_fd, int channel_fd, struct dpb_keeper *keeper)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return dpb_fail(DPB_FAILED, "cannot open a pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]); /* before Linux 5.9 close_range does nothing */
        keep(
            (const int[N_KEPT]){[LAUNCHER] = ends[0], [LINK] = channel_fd, [CONNECTION] = pmix_fd});
    }
    int error = errno;
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return dpb_fail(DPB_FAILED, "cannot start a process: %s", strerror(error));
    }
    *keeper = (struct dpb_keeper){pid, ends[1]};
    return DPB_OK;
}

void dpb_keeper_stop(struct dpb_keeper *keeper)
{
    if (keeper->pid <= 0)
        return;
    kill(keeper->pid, SIGKILL);
    while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    close(keeper->alive_fd);
    *keeper = (struct dpb_keeper){0};
}
