# An overlay port: vcpkg install tutti --overlay-ports=packaging/vcpkg/ports
# The sources are those of the tree that holds this file.  vcpkg's libfabric is for Windows alone: the tcp backend is
# built if the system has libfabric.
vcpkg_check_linkage(ONLY_DYNAMIC_LIBRARY)
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

if("mpi" IN_LIST FEATURES)
  set(mpi auto)
else()
  set(mpi OFF)
endif()
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DTUTTI_TESTS=OFF -DTUTTI_EXAMPLES=OFF -DTUTTI_FORTRAN=OFF -DTUTTI_MPI=${mpi} -DTUTTI_BACKEND_CUDA=OFF -DTUTTI_BACKEND_NCCL=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME Tutti CONFIG_PATH lib/cmake/Tutti)
vcpkg_fixup_pkgconfig()
vcpkg_copy_tools(AUTO_CLEAN
  TOOL_NAMES tutti-bench tutti-conformance tutti-info tutti-run tutti-store-bench tutti-trace)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share"
  "${CURRENT_PACKAGES_DIR}/share/doc")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
