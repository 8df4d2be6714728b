/*
 * fuzz_channel.c - what comes in by TCP from outside of the job: strangers who say anything where a
 * part is expected, none of whom is ever believed; and what a part that is believed could send.
 */
#include "launch/channel.h"
#include "tests/fuzz/fuzz.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const struct dpb_circle circle = {.name = "launchers", .secret = {1, 2, 3}};

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

static bool is_believed(struct dpb_door *door)
{
    struct pollfd fds[2 + DPB_STRANGERS];
    struct dpb_meeting came;
    poll(fds, dpb_door_watch(door, fds), 0);
    FUZZ_CHECK(dpb_door_serve(door, fds, &came) == DPB_OK);
    return came.fd >= 0;
}

/* Says its parts, one after the other, to one who expects a greeting and a proof. */
static void be_stranger(struct fuzz_input *input)
{
    struct sockaddr_un address;
    socklen_t size;
    int listener = listen_here(&address, &size);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct dpb_door door = {.listener = listener, .circle = &circle};
    FUZZ_CHECK(fd >= 0 && dpb_door_open(&door, 1) == DPB_OK &&
               connect(fd, (struct sockaddr *)&address, size) == 0);
    FUZZ_CHECK(!is_believed(&door)); /* lets it in */
    for (int i = 0; i < 4; i++) {
        struct fuzz_input part = fuzz_part(input);
        if (part.size > 0)
            (void)!send(fd, part.data, part.size, MSG_NOSIGNAL);
        FUZZ_CHECK(!is_believed(&door));
    }
    close(fd);
    FUZZ_CHECK(!is_believed(&door));
    dpb_door_close(&door);
    close(listener);
}

/* Whatever is sent, what is taken out of it lies within it. */
static void be_part(struct fuzz_input *input)
{
    int pair[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    struct dpb_channel channel = {.fd = pair[0]};
    struct dpb_frame frame;
    const void *value;
    char why[128];
    int found = 0;
    while (input->size > 0 && found >= 0) {
        struct fuzz_input part = fuzz_part(input);
        if (part.size > 0)
            (void)!send(pair[1], part.data, part.size, MSG_NOSIGNAL);
        FUZZ_CHECK(dpb_channel_receive(&channel));
        while ((found = dpb_channel_next(&channel, &frame, &value, why)) > 0) {
            FUZZ_CHECK(frame.op >= DPB_CHANNEL_REPORT && frame.op < DPB_CHANNEL_OPS_END);
            uint8_t sum = 0;
            for (uint32_t i = 0; i < frame.value_bytes; i++)
                sum = (uint8_t)(sum + ((const uint8_t *)value)[i]);
            (void)sum;
        }
    }
    dpb_channel_close(&channel);
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
