# Installs what programs and plug-ins outside this tree use to find Tutti: tutti.pc, tutti_train.pc,
# and find_package(Tutti).
include(CMakePackageConfigHelpers)
set(TUTTI_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)
set(TUTTI_BACKENDS ${CMAKE_INSTALL_LIBDIR}/tutti)
file(RELATIVE_PATH TUTTI_PREFIX_FROM_PC ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${PROJECT_SOURCE_DIR}/cmake/tutti.pc.in ${CMAKE_BINARY_DIR}/cmake/tutti.pc @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/cmake/tutti_train.pc.in ${CMAKE_BINARY_DIR}/cmake/tutti_train.pc @ONLY)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TuttiConfig.cmake.in
  ${CMAKE_BINARY_DIR}/cmake/TuttiConfig.cmake INSTALL_DESTINATION ${TUTTI_CONFIG_DIR}
  PATH_VARS TUTTI_BACKENDS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/TuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cmake/tutti.pc ${CMAKE_BINARY_DIR}/cmake/tutti_train.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TUTTI_STATIC)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/tutti_static.pc.in ${CMAKE_BINARY_DIR}/cmake/tutti_static.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/cmake/tutti_static.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
install(FILES ${CMAKE_BINARY_DIR}/cmake/TuttiConfig.cmake ${CMAKE_BINARY_DIR}/cmake/TuttiConfigVersion.cmake
  DESTINATION ${TUTTI_CONFIG_DIR})
install(TARGETS tutti tutti_train EXPORT TuttiTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT TuttiTargets NAMESPACE Tutti:: DESTINATION ${TUTTI_CONFIG_DIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# Documentation, and the examples as sources with a CMakeLists.txt that finds the installed library.
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/SECURITY.md
  ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
