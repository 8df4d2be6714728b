/*
 * fuzz_link.c - what comes in by TCP from outside of the job: strangers who say anything where a
 * part is expected, none of whom is ever believed; and what a part that is believed could send.
 */
#include "launch/link.h"
#include "tests/fuzz/fuzz.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const uint8_t secret[DPB_SECRET_BYTES] = {1, 2, 3};

/* A listening socket, and where it listens: a name that the system chooses. */
static int listen_here(struct sockaddr_un *address, socklen_t *size)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    *size = sizeof *address;
    FUZZ_CHECK(fd >= 0 && bind(fd, (struct sockaddr *)address, sizeof address->sun_family) == 0 &&
               listen(fd, 4) == 0 && getsockname(fd, (struct sockaddr *)address, size) == 0);
    return fd;
}

/* Says its parts, one after the other, to one who expects a greeting and a proof. */
static void be_stranger(struct fuzz_input *input)
{
    struct sockaddr_un address;
    socklen_t size;
    int listener = listen_here(&address, &size), taken;
    uint32_t rank;
    link_purpose purpose;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct link_pending *pending = link_pending_create(listener, secret, 0, 1);
    FUZZ_CHECK(fd >= 0 && pending && connect(fd, (struct sockaddr *)&address, size) == 0);
    for (int i = 0; i < 4; i++) {
        struct fuzz_input part = fuzz_part(input);
        if (part.size > 0)
            (void)!send(fd, part.data, part.size, MSG_NOSIGNAL);
        FUZZ_CHECK(!link_pending_take(pending, 0, &taken, &rank, &purpose));
    }
    close(fd);
    FUZZ_CHECK(!link_pending_take(pending, 0, &taken, &rank, &purpose));
    link_pending_destroy(pending);
    close(listener);
}

/* Whatever is sent, what is taken out of it lies within it. */
static void be_part(struct fuzz_input *input)
{
    int pair[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    struct link link = {.fd = pair[0]};
    struct dpb_frame frame;
    const void *value;
    char why[128];
    int found = 0;
    while (input->size > 0 && found >= 0) {
        struct fuzz_input part = fuzz_part(input);
        if (part.size > 0)
            (void)!send(pair[1], part.data, part.size, MSG_NOSIGNAL);
        FUZZ_CHECK(link_receive(&link));
        while ((found = link_next(&link, &frame, &value, why)) > 0) {
            FUZZ_CHECK(frame.op >= LINK_REPORT && frame.op < LINK_OPS_END);
            uint8_t sum = 0;
            for (uint32_t i = 0; i < frame.value_bytes; i++)
                sum = (uint8_t)(sum + ((const uint8_t *)value)[i]);
            (void)sum;
        }
    }
    link_close(&link);
    close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    fuzz_begin();
    if (fuzz_byte(&input) & 1)
        be_part(&input);
    else
        be_stranger(&input);
    return 0;
}
