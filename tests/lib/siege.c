/* siege.c - see siege.h. */
#include "lib/siege.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CROWD = 100 /* that stay while others come */ };

const char *const siege_names[SIEGE_KINDS + 1] = {
    [SIEGE_SILENT] = "silent",   [SIEGE_LEAVES] = "leaves",     [SIEGE_RESETS] = "resets",
    [SIEGE_RUBBISH] = "rubbish", [SIEGE_FLOOD] = "flood",       [SIEGE_HALF] = "half",
    [SIEGE_MAGIC] = "magic",     [SIEGE_PURPOSE] = "purpose",   [SIEGE_UNPROVEN] = "unproven",
    [SIEGE_ECHO] = "echo",       [SIEGE_KINDS] = "of each kind"};

static bool is_stopped(const struct siege *siege)
{
    return __atomic_load_n(&siege->stop, __ATOMIC_ACQUIRE);
}

/* From an address of its own now and then: ports of one address run out. */
static int knock(const struct siege *siege)
{
    const struct sockaddr_in from = {.sin_family = AF_INET,
                                     .sin_addr.s_addr =
                                         htonl(INADDR_LOOPBACK + 1 + siege->n_came % 200)},
                             to = {.sin_family = AF_INET,
                                   .sin_port = htons(siege->port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = 20};
    const struct timespec pause = {.tv_nsec = 2000000};
    for (int tries = 0; tries < 5000 && !is_stopped(siege); tries++, nanosleep(&pause, NULL)) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (bind(fd, (const struct sockaddr *)&from, sizeof from) == 0 &&
            connect(fd, (const struct sockaddr *)&to, sizeof to) == 0)
            return fd;
        close(fd);
    }
    return -1;
}

/* By a reset, which leaves no port waiting. */
static void leave(int fd)
{
    const struct linger at_once = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

/* Greets as one of the job would, or nearly so, and proves nothing. */
static void claim(int fd, const struct siege *siege, enum siege_kind kind)
{
    struct dpb_greeting greeting = siege->greeting;
    struct dpb_answer answer;
    uint8_t proof[DPB_MAC_BYTES] = {1};
    if (kind == SIEGE_MAGIC)
        greeting.magic ^= 1;
    if (kind == SIEGE_PURPOSE)
        greeting.dialler = greeting.purpose = UINT32_MAX;
    if (send(fd, &greeting, kind == SIEGE_HALF ? 20 : sizeof greeting, MSG_NOSIGNAL) < 0 ||
        kind == SIEGE_HALF || recv(fd, &answer, sizeof answer, MSG_WAITALL) != sizeof answer)
        return;
    if (kind == SIEGE_ECHO)
        memcpy(proof, answer.code, sizeof proof);
    (void)!send(fd, proof, sizeof proof, MSG_NOSIGNAL);
}

static void say(int fd, const struct siege *siege, enum siege_kind kind)
{
    static const char rubbish[65536];
    if (kind == SIEGE_RUBBISH || kind == SIEGE_FLOOD)
        (void)!send(fd, rubbish, kind == SIEGE_FLOOD ? sizeof rubbish : 500, MSG_NOSIGNAL);
    else if (kind >= SIEGE_HALF)
        claim(fd, siege, kind);
}

/* Whether the port has closed the connection, or does so soon; it is left. */
static bool is_refused(int fd)
{
    char byte;
    errno = 0;
    const bool refused = fd >= 0 && recv(fd, &byte, 1, 0) <= 0 && errno != EAGAIN;
    leave(fd);
    return refused;
}

static void visit(struct siege *siege, int fd, int crowd[CROWD], unsigned *n_stayed)
{
    const enum siege_kind kind =
        siege->kind < SIEGE_KINDS ? siege->kind : (enum siege_kind)(siege->n_came % SIEGE_KINDS);
    say(fd, siege, kind);
    if (kind == SIEGE_SILENT || kind == SIEGE_HALF) {
        int *place = &crowd[(*n_stayed)++ % CROWD]; /* whose turn is over: all places are taken */
        siege->n_refused += is_refused(*place);
        *place = fd;
    } else if (kind == SIEGE_LEAVES || kind == SIEGE_RESETS) {
        siege->n_refused++;
        kind == SIEGE_RESETS ? leave(fd) : (void)close(fd);
    } else {
        siege->n_refused += is_refused(fd);
    }
    __atomic_fetch_add(&siege->n_came, 1, __ATOMIC_RELEASE);
}

void *siege_lay(void *siege_)
{
    struct siege *siege = siege_;
    int crowd[CROWD], fd = -1;
    unsigned n_stayed = 0;
    memset(crowd, -1, sizeof crowd);
    while ((siege->n == 0 || siege->n_came < siege->n) && (fd = knock(siege)) >= 0)
        visit(siege, fd, crowd, &n_stayed);
    for (int i = 0; i < CROWD; i++) /* these have places, for as long as DPB_VISIT_NS */
        siege->n_refused += is_refused(crowd[i]);
    __atomic_store_n(&siege->over, true, __ATOMIC_RELEASE);
    return NULL;
}
