/*
 * fuzz_party.c - what the launchers of a job's parts say while they come together: reports of what
 * each has read, and the verdict on them; and what a rank says when it joins. That they have proven
 * the secret does not make it well formed: fuzz_channel.c has what comes before.
 */
#include "launch/agree.c"
#include "launch/meet.c"

#include "tests/fuzz/fuzz.h"

enum { RANKS = 3 };

static struct dpb_party *create(uint32_t part, uint32_t n_ranks)
{
    struct dpb_party *party = calloc(1, sizeof *party);
    FUZZ_CHECK(party != NULL);
    *party = (struct dpb_party){.part = part,
                                .launcher = "fuzz",
                                .socket = -1,
                                .pmix_fd = -1,
                                .parent = getppid(),
                                .starter = getppid(),
                                .timeout_ns = 1000000000};
    FUZZ_CHECK(make_room(party, RANKS, n_ranks, n_ranks) == DPB_OK);
    return party;
}

static void open_pair(int pair[2])
{
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
}

/* Says it as a frame, or as it is, and nothing after it. The other end, to be closed. */
static int channel_said(struct dpb_channel *own, dpb_channel_op op, bool framed, const void *bytes,
                        size_t n)
{
    int pair[2];
    open_pair(pair);
    struct dpb_channel other = {.fd = pair[1]};
    if (framed)
        FUZZ_CHECK(dpb_channel_say(&other, op, 1, bytes, n));
    else if (n > 0)
        (void)!send(pair[1], bytes, n, MSG_NOSIGNAL);
    other.fd = -1;
    dpb_channel_close(&other);
    FUZZ_CHECK(shutdown(pair[1], SHUT_WR) == 0);
    *own = (struct dpb_channel){.fd = pair[0], .lost_fd = -1};
    return pair[1];
}

/* A report that is right but for what the form says, and the input as its text; or the input
 * alone. */
static int say_report(struct dpb_channel *channel, struct fuzz_input *input)
{
    uint8_t form = fuzz_byte(input);
    struct fuzz_input text = fuzz_part(input);
    struct report report;
    make_report(form & 2 ? DPB_USAGE : DPB_OK, &report);
    if (form & 4)
        memset(report.version, 'x', sizeof report.version);
    if (form & 8)
        report.affinity[0] ^= 255;
    char *bytes = malloc(sizeof report + text.size);
    FUZZ_CHECK(bytes != NULL);
    memcpy(bytes, &report, sizeof report);
    if (text.size > 0)
        memcpy(bytes + sizeof report, text.data, text.size);
    int other =
        form & 1 ? channel_said(channel, DPB_CHANNEL_REPORT, (form & 16) == 0, text.data, text.size)
                 : channel_said(channel, form & 16 ? DPB_CHANNEL_PING : DPB_CHANNEL_REPORT, true,
                                bytes, sizeof report + text.size);
    free(bytes);
    return other;
}

static void be_head(struct fuzz_input *input)
{
    struct dpb_party *party = create(0, RANKS);
    struct fuzz_input config = fuzz_part(input);
    char *own = strndup((const char *)config.data, config.size);
    int code = -1, others[RANKS] = {-1};
    FUZZ_CHECK(own != NULL);
    for (uint32_t rank = 1; rank < RANKS; rank++)
        others[rank] = say_report(&party->channels[rank], input);
    dpb_status status = dpb_party_agree(party, DPB_OK, own, 2, &code);
    FUZZ_CHECK(code == dpb_status_exit_code(status));
    FUZZ_CHECK(status == DPB_OK || dpb_first_error(NULL)[0] != '\0');
    if (status == DPB_OK) {
        FUZZ_CHECK(party->seats[0].index < party->seats[0].n_workers);
        fuzz_used();
    }
    free(own);
    for (uint32_t rank = 1; rank < RANKS; rank++)
        close(others[rank]);
    destroy(party);
}

static void be_part(struct fuzz_input *input)
{
    uint8_t form = fuzz_byte(input);
    struct dpb_party *party = create(1, form & 4 ? 2 * RANKS : RANKS);
    int code = -1;
    int other =
        channel_said(&party->channels[0], form & 1 ? DPB_CHANNEL_REPORT : DPB_CHANNEL_VERDICT,
                     (form & 2) == 0, input->data, input->size);
    dpb_status status = dpb_party_agree(party, DPB_OK, "{}", 2, &code);
    FUZZ_CHECK((status == DPB_OK) == (code == 0));
    if (status == DPB_OK)
        fuzz_used();
    close(other);
    destroy(party);
}

/* What is believed lies within what there is. */
static void hear_join(struct fuzz_input *input)
{
    struct dpb_party *party = calloc(1, sizeof *party);
    struct dpb_join_answer answer = {0}, given = {.magic = DPB_JOIN_MAGIC};
    FUZZ_CHECK(party != NULL);
    *party = (struct dpb_party){.part = fuzz_byte(input) % RANKS,
                                .launcher = "fuzz",
                                .socket = -1,
                                .pmix_fd = -1,
                                .parent = getppid(),
                                .starter = getppid(),
                                .timeout_ns = 1000000000};
    given.rank = party->part;
    given.n_ranks = fuzz_word(input) % (2 * DPB_JOB_RANKS);
    uint8_t form = fuzz_byte(input);
    given.magic ^= form & 1;
    given.status = form & 2 ? DPB_FAILED : DPB_OK;
    given.rank += (form & 4) / 4;
    memset(given.text, 'x', form & 8 ? sizeof given.text : 7);
    size_t hosts = given.n_ranks > 0 && given.n_ranks <= RANKS ? given.n_ranks : RANKS;
    size_t n = sizeof given + hosts * DPB_HOST_BYTES;
    char *bytes = calloc(1, n);
    FUZZ_CHECK(bytes != NULL);
    memcpy(bytes, &given, sizeof given);
    memcpy(bytes + sizeof given, input->data,
           input->size < n - sizeof given ? input->size : n - sizeof given);
    int pair[2];
    open_pair(pair);
    (void)!send(pair[1], "", 1, MSG_NOSIGNAL);
    (void)!send(pair[1], bytes, form & 16 ? n / 2 : n, MSG_NOSIGNAL);
    close(pair[1]);
    party->socket = pair[0];
    if (hear_rank(party, dpb_deadline_in(party->timeout_ns), &answer) == DPB_OK) {
        find_machines(party);
        FUZZ_CHECK(party->n_machines >= 1 && party->n_machines <= party->n_ranks);
        for (uint32_t rank = 0; rank < party->n_ranks; rank++)
            FUZZ_CHECK(party->machines[rank] < party->n_machines);
        fuzz_used();
    } else {
        FUZZ_CHECK(dpb_first_error(NULL)[0] != '\0');
    }
    close(party->socket);
    free(bytes);
    destroy(party);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    fuzz_begin();
    uint8_t what = fuzz_byte(&input);
    if (what % 3 == 0)
        be_head(&input);
    else if (what % 3 == 1)
        be_part(&input);
    else
        hear_join(&input);
    return 0;
}
