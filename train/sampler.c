#include <inttypes.h>
#include <tutti/train/sampler.h>

#include "permutation.h"

static int64_t total_of(int64_t size, int64_t ranks, bool drop_last)
{
    int64_t rest = size % ranks;
    return rest == 0 || drop_last ? size - rest : size - rest + ranks;
}

/* Finds rank and world size: those of the options, of the group, or of a process without one. */
static int find_rank(const tutti_sampler_opts *opts, int *rank, int *world_size)
{
    bool given = opts->world_size != 0, grouped = opts->group != NULL || tutti_is_initialized();
    *rank = given ? opts->rank : grouped ? tutti_get_rank(opts->group) : 0;
    *world_size = given ? opts->world_size : grouped ? tutti_get_world_size(opts->group) : 1;
    if (!given && *rank < 0)
        return tutti_set_error(
            TUTTI_ERR_INVALID_ARGUMENT,
            "sampler_init: this rank is not a member of the group; make the sampler on members only");
    if (*world_size > 0 && *rank >= 0 && *rank < *world_size) return TUTTI_OK;
    return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                           "sampler_init: rank is %d of %d; it must be in 0 .. world_size - 1", *rank, *world_size);
}

int tutti_sampler_init_sized(tutti_sampler *sampler, int64_t size, const tutti_sampler_opts *opts, size_t opts_bytes)
{
    tutti_sampler_opts options;
    int rank, world_size;
    int status = tutti_sized_read("tutti_sampler_opts", opts, opts_bytes, &options, sizeof options);
    if (status != TUTTI_OK) return status;
    if (sampler == NULL || size < 0 || size > INT64_MAX / 2)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "sampler_init: sampler is %p and size %" PRId64
                               "; pass a sampler and a size from 0 to 2^62",
                               (void *)sampler, size);
    status = find_rank(&options, &rank, &world_size);
    if (status != TUTTI_OK) return status;
    int64_t total = total_of(size, world_size, options.drop_last);
    if (total == 0 && size > 0)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "sampler_init: %" PRId64
                               " samples are fewer than %d ranks, and drop_last drops all of them",
                               size, world_size);
    *sampler = (tutti_sampler){.size = size,
                               .total = total,
                               .seed = options.seed,
                               .rank = rank,
                               .world_size = world_size,
                               .shuffle = options.shuffle};
    return TUTTI_OK;
}

int64_t tutti_sampler_length(const tutti_sampler *sampler)
{
    return sampler->total / sampler->world_size;
}

/* Returns the sample at a place of the order that all ranks share.  Places beyond the end repeat the beginning. */
static int64_t sample_at(const tutti_sampler *sampler, int64_t place)
{
    place %= sampler->size;
    if (!sampler->shuffle) return place;
    return permutation_at(permutation_key(sampler->seed, (uint64_t)sampler->epoch), sampler->size, place);
}

int64_t tutti_sampler_index(const tutti_sampler *sampler, int64_t i)
{
    if (i < 0 || i >= tutti_sampler_length(sampler)) return -1;
    return sample_at(sampler, i * sampler->world_size + sampler->rank);
}

bool tutti_sampler_next(tutti_sampler *sampler, int64_t *index)
{
    if (sampler->at >= sampler->total) return false;
    *index = sample_at(sampler, sampler->at + sampler->rank);
    sampler->at += sampler->world_size;
    return true;
}

void tutti_sampler_set_epoch(tutti_sampler *sampler, int64_t epoch)
{
    sampler->epoch = epoch;
    sampler->at = 0;
}

int64_t tutti_sampler_position(const tutti_sampler *sampler)
{
    return sampler->at;
}

int tutti_sampler_resume(tutti_sampler *sampler, int64_t epoch, int64_t position)
{
    if (position < 0 || position > sampler->total)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "sampler_resume: position is %" PRId64 "; an epoch has %" PRId64 " samples", position,
                               sampler->total);
    tutti_sampler_set_epoch(sampler, epoch);
    sampler->at = position - position % sampler->world_size;
    return TUTTI_OK;
}
