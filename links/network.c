/* network.c - see network.h. */
#include "links/network.h"

#include <stdio.h>

#include "base/json.h"
#include "base/log.h"
#include "links/links_report.h"
#include "links/network_test.h"
#include "links/slow.h"
#include "machine/cores.h"
#include "record/facts.h"
#include "record/result.h"

static dpb_status set_unless_given(struct dpb_config *config, const char *section, const char *key,
                                   const char *value)
{
    if (dpb_config_get(config, section, key))
        return DPB_OK;
    return dpb_config_set(config, section, key, value, DPB_NETWORK_ORIGIN);
}

/* The options of the interface are those of a strategy over TCP. A rank waits for the pairs before
 * its own: that is no stall. */
static dpb_status make_experiment(struct dpb_config *config, struct dpb_experiment **experiment)
{
    if (dpb_sweep_wanted(config))
        return dpb_fail(DPB_USAGE, "`dpbench links network` measures one job's machines, and "
                                   "[sweep] or [tune] makes several jobs; leave it out");
    DPB_TRY(dpb_config_set(config, "run", "mode", "network", DPB_NETWORK_ORIGIN));
    DPB_TRY(set_unless_given(config, "comm", "name", "ring_tcp"));
    DPB_TRY(set_unless_given(config, "run", "stall_warning_s", "0"));
    DPB_TRY(dpb_experiment_create(config, experiment));
    return dpb_network_refuse(*experiment);
}

static json_t *machines_to_json(const struct dpb_experiment *experiment, struct dpb_board *board)
{
    json_t *list = json_array();
    for (uint32_t machine = 0; machine < experiment->n_machines; machine++) {
        const uint32_t rank = dpb_network_rank(experiment, machine);
        const struct dpb_status_page *page = dpb_board_page(board, rank);
        json_t *facts = dpb_facts_to_json(page);
        json_t *interface = json_incref(json_object_get(facts, "interface"));
        json_array_append_new(list, json_pack("{s:I, s:o, s:o}", "rank", (json_int_t)rank, "host",
                                              dpb_json_string(page->host), "interface",
                                              interface ? interface : json_null()));
        json_decref(facts);
    }
    return list;
}

static json_t *ways_to_json(const struct dpb_experiment *experiment, struct dpb_board *board)
{
    json_t *list = json_array();
    for (uint32_t from = 0; from < experiment->n_machines; from++) {
        const struct dpb_network_journal *journal =
            dpb_board_journal(board, dpb_network_rank(experiment, from), NULL);
        for (uint32_t to = 0; to < experiment->n_machines; to++) {
            const struct dpb_network_row *row = &journal->rows[to];
            if (row->measured)
                json_array_append_new(list,
                                      dpb_links_way_to_json(from, to, &row->latency, row->rate));
        }
    }
    return list;
}

static int deliver(const struct dpb_experiment *experiment, const struct dpb_arguments *arguments,
                   const struct dpb_job_outcome *outcome)
{
    json_t *document =
        json_pack("{s:s, s:s, s:o, s:o, s:o, s:{s:s, s:o, s:o}}",                                 //
                  "schema", "dpbench.links/1",                                                    //
                  "status", dpb_result_status(outcome->status),                                   //
                  "error", outcome->cause[0] ? dpb_json_string(outcome->cause) : json_null(),     //
                  "warnings", dpb_warnings_collect(outcome->board),                               //
                  "machine", dpb_machine_describe(),                                              //
                  "network", "launcher", arguments->party ? arguments->party->launcher : "local", //
                  "machines", machines_to_json(experiment, outcome->board),                       //
                  "ways", ways_to_json(experiment, outcome->board));
    if (document) {
        json_t *network = json_object_get(document, "network");
        json_object_set_new(network, "slow", dpb_links_slow(network));
        dpb_links_series(document);
    }
    return dpb_measured_deliver(document, outcome->exit_code, arguments, "", "links",
                                dpb_links_report_print);
}

static int measure(struct dpb_experiment *experiment, const struct dpb_arguments *arguments)
{
    struct dpb_job_outcome outcome;
    const struct dpb_live_place place = {.label = "links network",
                                         .journal_bytes = sizeof(struct dpb_network_journal)};
    dpb_execute_job(experiment, arguments->party, &place, &outcome);
    const int code = outcome.board ? deliver(experiment, arguments, &outcome) : outcome.exit_code;
    dpb_board_destroy(outcome.board);
    return code;
}

static int run(struct dpb_arguments *arguments)
{
    return dpb_measure(arguments, make_experiment, measure);
}

int dpb_links_network(const struct dpb_command *self, int argc, char **argv)
{
    return dpb_together(
        self, DPB_ACCEPTS_CONFIG | DPB_CONFIG_OPTIONAL | DPB_ACCEPTS_OUTPUT | DPB_ACCEPTS_SERIES,
        NULL, argc, argv, run);
}
