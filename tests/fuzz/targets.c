#include "targets.h"

const struct fuzz_target fuzz_targets[] = {
    {"tcp_message", fuzz_tcp_message},
    {"tcp_header", fuzz_tcp_header},
    {"tcp_handshake", fuzz_tcp_handshake},
    {"tcp_address", fuzz_tcp_address},
    {"tcp_name", fuzz_tcp_name},
    {"tcp_envelope", fuzz_tcp_envelope},
    {"store_request", fuzz_store_request},
    {"store_reply", fuzz_store_reply},
    {"store_sent", fuzz_store_sent},
    {"store_handshake", fuzz_store_handshake},
    {"store_seal", fuzz_store_seal},
    {"store_file", fuzz_store_file},
    {"control_message", fuzz_control_message},
    {"fingerprint", fuzz_fingerprint},
    {"init_method", fuzz_init_method},
    {"backend_names", fuzz_backend_names},
    {"algo", fuzz_algo},
    {"tuning", fuzz_tuning},
#ifdef TUTTI_TEST_DLPACK
    {"dlpack", fuzz_dlpack},
#endif
    {"checkpoint", fuzz_checkpoint},
    {"flight_record", fuzz_flight_record},
    {"plan", fuzz_plan},
    {"node", fuzz_node},
    {NULL, NULL},
};
