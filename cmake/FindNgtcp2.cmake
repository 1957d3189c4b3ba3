# Finds ngtcp2 with its GnuTLS crypto: target Ngtcp2::Ngtcp2, variable Ngtcp2_FOUND.
find_package(GnuTLS QUIET)
find_path(Ngtcp2_INCLUDE_DIR ngtcp2/ngtcp2_crypto_gnutls.h)
find_library(Ngtcp2_LIBRARY ngtcp2)
find_library(Ngtcp2_CRYPTO_LIBRARY ngtcp2_crypto_gnutls)
mark_as_advanced(Ngtcp2_INCLUDE_DIR Ngtcp2_LIBRARY Ngtcp2_CRYPTO_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Ngtcp2 REQUIRED_VARS Ngtcp2_LIBRARY Ngtcp2_CRYPTO_LIBRARY Ngtcp2_INCLUDE_DIR
                                                       GNUTLS_FOUND)

if(Ngtcp2_FOUND AND NOT TARGET Ngtcp2::Ngtcp2)
  add_library(Ngtcp2::Ngtcp2 UNKNOWN IMPORTED)
  set_target_properties(
    Ngtcp2::Ngtcp2
    PROPERTIES IMPORTED_LOCATION "${Ngtcp2_CRYPTO_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${Ngtcp2_INCLUDE_DIR}"
               INTERFACE_LINK_LIBRARIES "${Ngtcp2_LIBRARY};GnuTLS::GnuTLS")
endif()
