/* squares.c - see squares.h. */
#include "lib/strategy/squares.h"

struct dpb_squares *dpb_strategy_squares_of(const struct dpb_strategy *strategy, uint32_t owner)
{
    return strategy->squares.all + (size_t)owner * strategy->arenas.layout.n_tensors;
}

dpb_status dpb_strategy_open_squares(struct dpb_strategy *strategy,
                                     const struct dpb_squares_carrier *carrier, uint32_t n_owners,
                                     uint32_t own)
{
    void *all =
        strategy->host->alloc(n_owners * dpb_strategy_squares_bytes(&strategy->arenas.layout));
    strategy->squares = (struct dpb_strategy_squares){
        .carrier = carrier, .all = all, .n_owners = n_owners, .own = own};
    return all ? DPB_OK : DPB_NO_MEMORY;
}

bool dpb_strategy_squares_due(void *strategy_, uint64_t bucket)
{
    const struct dpb_strategy *strategy = strategy_;
    return !dpb_strategy_is_last(strategy, bucket) || strategy->squares.round == 0 ||
           strategy->squares.carrier->here(strategy);
}

void dpb_strategy_squares_work(void *strategy_, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_strategy *strategy = strategy_;
    struct dpb_strategy_squares *squares = &strategy->squares;
    const bool begins = squares->round == 0;
    turn->at = turn->length;
    if (!dpb_strategy_is_last(strategy, bucket) || !strategy->args.whole || strategy->step.more)
        return;
    if (!begins && squares->carrier->take)
        squares->carrier->take(strategy);
    const int64_t began_ns = strategy->host->now_ns();
    bool more;
    strategy->host->optimizer->squares(strategy->arenas.optimizer, NULL, &strategy->step,
                                       begins ? NULL : squares->all, squares->n_owners,
                                       dpb_strategy_squares_of(strategy, squares->own), &more);
    strategy->host->span(bucket, DPB_PHASE_REDUCE, began_ns, strategy->host->now_ns());
    squares->round = more ? squares->round + 1 : 0;
    if (!more)
        return;
    turn->at = 0; /* until the entries of all owners are here */
    squares->carrier->give(strategy);
}
