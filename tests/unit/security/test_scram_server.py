"""The server's side of SCRAM: the example of RFC 7677, and everything that must not log in."""

from __future__ import annotations

import base64

import pytest

from ottla.model.errors import WireError
from ottla.security.mechanism import SaslMechanism
from ottla.security.scram import ClientFinal, ClientFirst, ScramClient, ServerFirst, auth_message, scram_hash
from ottla.security.scram_server import CredentialDamaged, Found, ScramCredential, ScramServer, decoy
from ottla.security.secret import Secret

SHA_256, SHA_512 = SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512
PASSWORD = Secret("pencil")
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def users(mechanism: SaslMechanism = SHA_256, **passwords: str) -> dict[str, ScramCredential]:
    return {name: ScramCredential.of_password(mechanism, Secret(text), SALT, 4_096) for name, text in passwords.items()}


def server(found: dict[str, ScramCredential], mechanism: SaslMechanism = SHA_256) -> ScramServer:
    def find(name: str) -> Found:
        credential = found.get(name)
        return decoy(mechanism, b"cluster", name) if credential is None else Found(credential, True)

    return ScramServer(mechanism, find, SERVER_NONCE)


def client(
    name: str = "user", password: Secret = PASSWORD, mechanism: SaslMechanism = SHA_256, extensions: str = ""
) -> ScramClient:
    return ScramClient(mechanism, name, password, "rOprNGfwEbeRWgbNEkqO", extensions)


def test_example_of_the_rfc_is_followed() -> None:
    scram = server(users(user="pencil"))
    challenge = scram.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert challenge == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    last = scram.final(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert last == ("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_client_with_the_password_logs_in_and_knows_the_server(mechanism: SaslMechanism) -> None:
    scram, peer = server(users(mechanism, user="pencil"), mechanism), client(mechanism=mechanism)
    proved = scram.final(peer.final(scram.first(peer.first())))
    assert proved is not None
    assert proved[0] == "user"
    peer.verify(proved[1])


def test_names_with_commas_and_equal_signs_log_in() -> None:
    name = "a=b,c=d"
    scram, peer = server({name: users(x="pencil")["x"]}), client(name)
    assert scram.final(peer.final(scram.first(peer.first()))) is not None


@pytest.mark.parametrize("name", ["user", "other"])
def test_wrong_password_and_unknown_user_get_a_challenge_and_fail_alike(name: str) -> None:
    scram, peer = server(users(user="pencil")), client(name, Secret("pen"))
    challenge = ServerFirst.parse(scram.first(peer.first()))
    assert challenge.iterations == 4_096
    assert scram.final(peer.final(challenge.to_bytes())) is None


def test_unknown_user_has_the_same_salt_each_time_and_on_each_broker() -> None:
    one, again, other = (decoy(SHA_256, b"cluster", name).credential for name in ("a", "a", "b"))
    assert one.salt == again.salt
    assert one.salt != other.salt
    assert decoy(SHA_256, b"another", "a").credential.salt != one.salt


def test_user_who_knows_the_decoy_does_not_log_in() -> None:
    # The decoy's server key is also its stored key: a proof made for it must not count.
    scram = server({})
    first = ClientFirst("ghost", "abc")
    challenge = ServerFirst.parse(scram.first(first.to_bytes()))
    final = ClientFinal(challenge.nonce, b"")
    signature = scram_hash(SHA_256).hmac(b"\0" * 32, auth_message(first, challenge, final))
    assert scram.final(final._replace(proof=signature).to_bytes()) is None


def proof_with_nonce(scram: ScramServer, nonce_of: str) -> bytes:
    """A last message whose proof is right, with another nonce; `{c}` is the client's, `{s}` the combined one."""
    peer = client()
    challenge = ServerFirst.parse(scram.first(peer.first()))
    final = ClientFinal(nonce_of.format(c=peer.nonce, s=challenge.nonce), b"")
    formulas = scram_hash(SHA_256)
    key = formulas.client_key(formulas.salted_password(PASSWORD, SALT, 4_096))
    message = auth_message(ClientFirst("user", peer.nonce), challenge, final)
    return final._replace(proof=formulas.client_proof(key, message)).to_bytes()


def test_nonce_of_old_librdkafka_which_repeats_its_own_is_accepted() -> None:
    scram = server(users(user="pencil"))
    assert scram.final(proof_with_nonce(scram, "{c}{s}")) is not None


@pytest.mark.parametrize("nonce", ["{c}", "{c}x", "{s}x", "x{s}", "{c}{c}{s}", "{s}{s}", "{c}{c}", "other", "{s}{c}"])
def test_every_other_nonce_is_refused_although_its_proof_is_right(nonce: str) -> None:
    scram = server(users(user="pencil"))
    message = proof_with_nonce(scram, nonce)
    with pytest.raises(WireError, match="nonce"):
        scram.final(message)


def test_messages_of_another_login_are_refused() -> None:
    first, second = server(users(user="pencil")), server(users(user="pencil"))
    second.nonce = "another"
    peer = client()
    recorded = peer.final(first.first(peer.first()))
    second.first(peer.first())
    with pytest.raises(WireError, match="nonce"):
        second.final(recorded)


def test_proof_of_another_hash_is_refused() -> None:
    scram, peer = server(users(SHA_512, user="pencil"), SHA_512), client(mechanism=SHA_256)
    assert scram.final(peer.final(scram.first(peer.first()))) is None


@pytest.mark.parametrize(
    "first",
    [
        b"n,a=admin,n=user,r=abc",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=user,r=abc,tokenauth=true",
        b"n,,n=user,r=abc,m=x",
        b"n,,m=x,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=a=b,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user",
        b"",
        b"\xff",
    ],
)
def test_first_messages_that_demand_more_or_are_none_are_refused(first: bytes) -> None:
    with pytest.raises(WireError):
        server(users(user="pencil", admin="x")).first(first)


@pytest.mark.parametrize("binding", ["eSws", "cD10bHMtdW5pcXVlLCw=", ""])
def test_channel_binding_is_refused(binding: str) -> None:
    scram = server(users(user="pencil"))
    peer = client()
    challenge = ServerFirst.parse(scram.first(peer.first()))
    with pytest.raises(WireError):
        scram.final(f"c={binding},r={challenge.nonce},p=AAAA".encode())


def test_credential_is_written_as_kafka_does() -> None:
    credential = users(user="pencil")["user"]
    text = credential.to_text()
    assert text == (
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )
    assert ScramCredential.parse(text) == credential
    assert "salt" not in repr(credential)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=AAAA",
        "salt=A,stored_key=AAAA,server_key=AAAA,iterations=4096",
        "salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=1",
        "salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=x",
        "salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=99999999999",
    ],
)
def test_text_that_is_no_credential_is_damaged_and_not_quoted(text: str) -> None:
    with pytest.raises(CredentialDamaged) as caught:
        ScramCredential.parse(text)
    assert "AAAA" not in str(caught.value)


def test_password_is_checked_against_a_credential() -> None:
    credential = users(user="pencil")["user"]
    assert credential.is_of(SHA_256, PASSWORD)
    assert not credential.is_of(SHA_256, Secret("pen"))
