/*
 * fuzz_text.c - options that are small languages of their own: comm.hosts, comm.interface,
 * comm_test.sizes. A text that is accepted means the same when it is written again.
 */
#include "bench/comm_test.h"
#include "launch/machines.h"
#include "lib/tcp/interface.h"
#include "tests/fuzz/fuzz.h"
#include "world/world.h"

enum { MOST_RANKS = 64, TEXT_BYTES = 16 * 1024 };

static char text[TEXT_BYTES];

static void read_machines(uint32_t n_ranks)
{
    uint32_t machines[MOST_RANKS], again[MOST_RANKS], n = 0, n_again = 0;
    char why[128] = "", written[MOST_RANKS * 8];
    if (!dpb_machines_parse(text, n_ranks, machines, &n, why)) {
        FUZZ_CHECK(why[0] != '\0');
        return;
    }
    FUZZ_CHECK(n >= 1 && n <= n_ranks);
    for (uint32_t rank = 0, highest = 0; rank < n_ranks; rank++) {
        FUZZ_CHECK(machines[rank] <= highest && machines[rank] < n);
        highest = machines[rank] == highest ? highest + 1 : highest;
    }
    FUZZ_CHECK(dpb_machines_format(machines, n_ranks, written, sizeof written));
    FUZZ_CHECK(dpb_machines_parse(written, n_ranks, again, &n_again, why) && n == n_again);
    FUZZ_CHECK(memcmp(machines, again, n_ranks * sizeof *machines) == 0);
    fuzz_used();
}

static void read_interface(bool one_machine)
{
    struct dpb_interface found = {0};
    dpb_world.n_machines = one_machine ? 1 : 2;
    if (dpb_interface_find(fuzz_host(), text, &found) == DPB_OK) {
        FUZZ_CHECK(found.name[0] != '\0' && found.address[0] != '\0' && found.socket_bytes > 0);
        fuzz_used();
    } else {
        FUZZ_CHECK(dpb_first_error(NULL)[0] != '\0');
    }
}

static void read_sizes(void)
{
    struct dpb_comm_point points[DPB_COMM_POINTS];
    struct dpb_config *config = dpb_config_create();
    struct dpb_experiment experiment = {.config = config, .gradient_type = DPB_FP32};
    uint32_t n = 0;
    FUZZ_CHECK(config != NULL);
    experiment.settings.comm_test.sizes = text;
    experiment.settings.comm_test.min_bytes = 4;
    experiment.settings.comm_test.max_bytes = 64;
    experiment.settings.comm_test.step_factor = 2;
    if (dpb_comm_points(&experiment, points, &n) == DPB_OK) {
        FUZZ_CHECK(n >= 1 && n <= DPB_COMM_POINTS);
        for (uint32_t i = 0; i < n; i++)
            FUZZ_CHECK(points[i].n_elements >= 1 && points[i].bytes == points[i].n_elements * 4);
        fuzz_used();
    } else {
        FUZZ_CHECK(dpb_first_error(NULL)[0] != '\0');
    }
    dpb_config_destroy(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    fuzz_begin();
    uint8_t what = fuzz_byte(&input);
    size_t length = input.size < sizeof text - 1 ? input.size : sizeof text - 1;
    if (length > 0)
        memcpy(text, input.data, length);
    text[length] = '\0';
    if (what % 4 == 0)
        read_sizes();
    else if (what % 4 == 1)
        read_interface(what & 4);
    else
        read_machines(1 + (what >> 2) % MOST_RANKS);
    return 0;
}
