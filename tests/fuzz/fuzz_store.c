/*
 * fuzz_store.c - the launcher's side of the store, with ranks that say anything: frames and bytes
 * in any order, deadlines and deaths between them. What comes back has to be well-formed.
 */
#include "launch/store_server.h"
#include "tests/fuzz/fuzz.h"
#include "world/store.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 3, MOST_COMMANDS = 256, KEYS = 4 };

struct job {
    struct dpb_store_server *server;
    int fds[RANKS]; /* the ranks' ends; -1: gone */
    struct dpb_buffer heard[RANKS];
};

static void job_create(struct job *job)
{
    FUZZ_CHECK(dpb_store_server_create(RANKS, &job->server) == DPB_OK);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        int pair[2];
        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
        dpb_store_server_attach(job->server, rank, pair[0]);
        job->fds[rank] = pair[1];
        job->heard[rank] = (struct dpb_buffer){0};
    }
}

static void job_destroy(struct job *job)
{
    dpb_store_server_destroy(job->server);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (job->fds[rank] >= 0)
            close(job->fds[rank]);
        dpb_buffer_free(&job->heard[rank]);
    }
}

static void send_bytes(struct job *job, uint32_t rank, const void *bytes, size_t n)
{
    if (job->fds[rank] >= 0 && n > 0)
        (void)!send(job->fds[rank], bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A frame whose header is right but for what the input makes wrong. */
static void send_frame(struct job *job, uint32_t rank, struct fuzz_input *input)
{
    static const uint8_t zeros[4096];
    uint8_t form = fuzz_byte(input);
    char key[DPB_STORE_KEY_BYTES + 1] = "key0";
    key[3] = (char)('0' + form % KEYS);
    struct dpb_frame frame = {.magic = DPB_STORE_MAGIC,
                              .op = fuzz_byte(input) % 9,
                              .key_bytes = form & 16 ? fuzz_byte(input) : 4,
                              .serial = fuzz_byte(input),
                              .value_bytes = form & 32 ? fuzz_word(input) % 4096 : 0,
                              .peer = form & 12 ? form >> 2 & 3U : UINT32_MAX,
                              .timeout_ns = form & 64 ? (int32_t)fuzz_word(input) : INT64_MAX};
    if (form & 128)
        frame.value_bytes = fuzz_word(input);
    send_bytes(job, rank, &frame, sizeof frame);
    send_bytes(job, rank, key, frame.key_bytes < sizeof key ? frame.key_bytes : sizeof key);
    send_bytes(job, rank, zeros,
               frame.value_bytes < sizeof zeros ? frame.value_bytes : sizeof zeros);
}

static void hear(struct job *job, uint32_t rank)
{
    struct dpb_frame frame;
    const char *key;
    const void *value;
    char why[128];
    struct dpb_buffer *heard = &job->heard[rank];
    while (job->fds[rank] >= 0 && dpb_buffer_receive(heard, job->fds[rank]) > 0)
        ;
    for (;;) {
        dpb_frame_state state = dpb_buffer_frame(heard, &frame, &key, &value, why);
        FUZZ_CHECK(state != DPB_FRAME_MALFORMED);
        if (state == DPB_FRAME_PARTIAL)
            return;
        FUZZ_CHECK(frame.op == DPB_STORE_ANSWER && frame.key_bytes == 0);
        FUZZ_CHECK(frame.peer == UINT32_MAX || frame.peer < RANKS);
        if (frame.status == DPB_OK)
            fuzz_used(); /* somebody got what it asked for */
        dpb_buffer_drop_frame(heard, &frame);
    }
}

static void command(struct job *job, struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input);
    uint32_t rank = (what >> 4) % RANKS;
    switch (what % 8) {
    case 0: {
        struct fuzz_input bytes = fuzz_part(input);
        send_bytes(job, rank, bytes.data, bytes.size);
        break;
    }
    case 1:
        dpb_store_server_expire(job->server, (int64_t)fuzz_word(input) << 31);
        return;
    case 2:
        if (job->fds[rank] >= 0)
            close(job->fds[rank]);
        job->fds[rank] = -1;
        dpb_store_server_detach(job->server, rank);
        return;
    case 3:
        hear(job, rank);
        break;
    default:
        send_frame(job, rank, input);
    }
    dpb_store_server_serve(job->server, rank, POLLIN | POLLOUT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct pollfd watched[RANKS];
    struct job job;
    fuzz_begin();
    job_create(&job);
    for (int i = 0; i < MOST_COMMANDS && input.size > 0; i++)
        command(&job, &input);
    dpb_store_server_watch(job.server, watched);
    FUZZ_CHECK(dpb_store_server_expire(job.server, INT64_MAX - 1).at_ns == INT64_MAX);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        dpb_store_server_serve(job.server, rank, POLLIN | POLLOUT);
        hear(&job, rank);
    }
    job_destroy(&job);
    return 0;
}
