// The calls of tutti.hpp, on every rank of a job.  Ends with 1 at the first wrong value.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <tutti/tutti.hpp>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "wrapper.cc:%d: %s\n", __LINE__, #condition);                                         \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

static void collectives(const tutti::group &world)
{
    const int rank = world.rank(), n = world.size();
    std::vector<double> x(100, rank + 1.0);
    tutti::work sum = world.async_all_reduce(x, TUTTI_SUM);
    sum.wait();
    CHECK(sum.completed() && x[99] == n * (n + 1) / 2.0);
    std::array<std::complex<float>, 2> pair{{{1, 2}, {3, 4}}};
    world.all_reduce(pair, TUTTI_SUM);
    CHECK(pair[1] == std::complex<float>(3.0f * (float)n, 4.0f * (float)n));
    int one = rank;
    world.broadcast(one, 1);
    CHECK(one == 1);
    world.scan(one, TUTTI_SUM);
    CHECK(one == rank + 1);
    std::vector<int> all((std::size_t)n);
    world.all_gather_into_tensor(all, rank);
    for (int r = 0; r < n; r++) CHECK(all[(std::size_t)r] == r);
    std::vector<std::vector<int>> parts;
    for (int r = 0; r < n; r++) parts.emplace_back(r + 1);
    std::vector<int> mine((std::size_t)rank + 1, rank);
    world.all_gather(std::vector<tutti::tensor>(parts.begin(), parts.end()), mine);
    for (int r = 0; r < n; r++) CHECK(parts[(std::size_t)r].back() == r);
    std::vector<int> turned((std::size_t)n);
    world.all_to_all_single(turned, all);
    for (int r = 0; r < n; r++) CHECK(turned[(std::size_t)r] == rank);
    world.barrier();
    CHECK(world.all_gather_bytes(std::string((std::size_t)rank, 'x'))[2] == "xx");
    CHECK(world.broadcast_bytes(rank == 1 ? "hello" : "", 1) == "hello");
}

static void messages(const tutti::group &world)
{
    const int rank = world.rank(), n = world.size(), right = (rank + 1) % n, left = (rank + n - 1) % n;
    float out = (float)rank, in = -1;
    tutti::options tagged;
    tagged.tag = 7;
    tutti::work received = world.irecv(in, left, tagged);
    world.send(out, right, tagged);
    received.wait();
    CHECK(in == (float)left && received.source() == left && received.tag() == 7);
    tutti::work never = world.irecv(in, left);
    CHECK(!never.wait_for(std::chrono::milliseconds(20)));
    world.barrier();
    world.send(out, right);
    never.wait();
}

static void groups_and_errors(const tutti::group &world)
{
    tutti::group odd = world.split(world.rank() % 2), moved = std::move(odd);
    int one = 1;
    moved.all_reduce(one, TUTTI_SUM);
    CHECK(one == moved.size());
    tutti::group two = world.new_group({0, 1});
    CHECK(two.size() == (world.rank() < 2 ? 2 : -1));
    bool thrown = false;
    try {
        world.broadcast(one, 99);
    } catch (const tutti::error &error) {
        thrown = true;
        CHECK(error.status() == TUTTI_ERR_INVALID_ARGUMENT);
        CHECK(std::string(error.what()).find("99") != std::string::npos);
    }
    CHECK(thrown);
    thrown = two.rank() >= 0;
    try {
        if (two.rank() < 0) two.all_gather_bytes("not a member");
    } catch (const tutti::error &) {
        thrown = true;
    }
    CHECK(thrown);
}

/* A group apart from the default group numbers its ranks on its own. */
static void group_of_a_store()
{
    tutti_store *store = nullptr;
    tutti_group *made = nullptr;
    tutti::check(tutti_store_memory(nullptr, &store));
    tutti::check(tutti_create_group("tcp", store, 0, 1, nullptr, &made));
    {
        tutti::group alone(made, true);
        CHECK(alone.broadcast_bytes("hello", 0) == "hello");
    }
    tutti_store_free(store);
}

static void spans(const tutti::group &world)
{
    const int n = world.size();
    std::vector<float> x(10, 1);
    world.all_reduce(tutti::span(x).subspan(2, 3), TUTTI_SUM);
    CHECK(x[1] == 1 && x[2] == (float)n && x[4] == (float)n && x[5] == 1);
    const std::vector<float> fixed(3, 2);
    std::vector<float> sum(3);
    world.all_reduce_into(sum, fixed, TUTTI_SUM); /* const elements are inputs */
    CHECK(sum[2] == 2 * (float)n);
    float part = 0;
    std::vector<tutti::input> list;
    for (int r = 0; r < n; r++) list.emplace_back(tutti::span<const float>(fixed).subspan((std::size_t)r % 3, 1));
    world.reduce_scatter(part, list, TUTTI_SUM);
    CHECK(part == 2 * (float)n);
#ifdef __cpp_lib_span
    world.broadcast(std::span(x).first(2), 0);
    world.all_reduce_into(sum, std::span<const float>(fixed), TUTTI_MAX);
    CHECK(sum[0] == 2);
#endif
}

static void results(const tutti::group &world)
{
    std::vector<int> x(4, 1);
    CHECK(world.try_all_reduce(x, TUTTI_SUM));
    tutti::result<void> bad = world.try_broadcast(x, 99);
    CHECK(!bad && bad.error().status() == TUTTI_ERR_INVALID_ARGUMENT);
    tutti::result<tutti::work> started = world.try_async_all_reduce(x, TUTTI_MAX);
    CHECK(started.has_value() && started->try_wait());
    CHECK(!world.try_isend(x, -5) && !world.try_irecv(x, 99) && !world.try_send(x, 99) && !world.try_recv(x, 99));
    bool thrown = false;
    try {
        world.try_async_broadcast(x, 99).value();
    } catch (const tutti::error &) {
        thrown = true;
    }
    CHECK(thrown && world.try_barrier());
    CHECK(tutti::world::try_make("tcp").error().status() == TUTTI_ERR_INVALID_ARGUMENT); /* there is one */
    CHECK(tutti_is_initialized());
}

int main()
{
    tutti::result<tutti::world> made = tutti::world::try_make("tcp");
    CHECK(made.has_value());
    tutti::world world = std::move(made).value();
    spans(world);
    results(world);
    CHECK(tutti::group::default_group().size() == world.size());
    collectives(world);
    messages(world);
    groups_and_errors(world);
    group_of_a_store();
}
