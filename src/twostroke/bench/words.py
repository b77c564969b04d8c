"""The words that prompts are made of: short, common, most of them one token each where a space stands before them."""

_TEXT = """
able about above across act action add after again against age ago agree air all allow almost along already also
always among amount and animal another answer any anyone appear apply area argue arm around arrive art article as
ask at attack away baby back bad bag ball bank bar base be bear beat because become bed before begin behind believe
best better between beyond big bill bit black blood blue board body book born both box boy break bring brother build
business but buy by call camera can car card care carry case catch cause cell center central certain chair chance
change character charge check child choice choose church city civil claim class clear close cold color come common
community company compare computer concern condition consider contain continue control cost could country couple
course court cover create cultural culture cup current customer cut dark data daughter day dead deal death debate
decade decide decision deep degree describe design despite detail develop difference different difficult dinner
direction director discover discuss disease do doctor dog door down draw dream drive drop drug during each early
east easy eat economic economy edge education effect effort eight either else employee end energy enjoy enough enter
entire environment especially establish even evening event ever every evidence exactly example executive exist
expect experience explain eye face fact factor fail fall family far fast father fear feel few field fight figure
fill film final find fine finger finish fire firm first fish five floor fly focus follow food foot for force foreign
forget form former forward four free friend from front full fund future game garden gas general get girl give glass
go goal good government great green ground group grow growth guess hair half hand hang happen happy hard have head
health hear heart heat heavy help here high him history hit hold home hope hospital hot hotel hour house how however
huge human hundred husband idea identify image imagine impact important improve include increase indeed individual
industry information inside instead interest into investment issue item join just keep key kid kill kind kitchen
know knowledge land language large last late later laugh law lawyer lay lead leader learn least leave left leg legal
less let letter level life light like likely line list listen little live local long look lose loss lot love low
machine magazine main maintain major make man manage many market material matter may maybe mean measure media
medical meet meeting member memory mention message method middle might military million mind minute miss mission
model modern moment money month more morning most mother mouth move movement movie much music must name nation
national natural nature near need network never new news next nice night none nor north not note nothing notice now
number occur of off offer office official often oil old once one only onto open operation option or order other out
outside over own owner page pain paper parent part particular partner party pass past patient pattern pay peace
people perform perhaps period person phone physical pick picture piece place plan plant play player point police
policy political poor popular population position possible power practice prepare present president pressure pretty
prevent price private problem process produce product program project property protect prove provide public pull
purpose push put quality question quickly quite race radio raise range rate rather reach read ready real reality
reason receive recent record red reduce reflect region relate remain remember remove report represent require
research resource respond rest result return reveal rich right rise risk road rock role room rule run safe same save
say scene school science score sea season seat second section security see seek seem sell send senior sense series
serious serve service set seven several shake share shoot short shot should shoulder show side sign similar simple
since sing single sister sit site situation six size skill skin small smile so social society some son song soon
sort sound source south space speak special specific speech spend sport spring staff stage stand standard star start
state station stay step still stock stop store story strategy street strong structure student study stuff style
subject success such suddenly suffer suggest summer support sure surface system table take talk task tax teach team
tell ten term test than thank that the their them then theory there these they thing think third this those though
thought thousand threat three through throw thus time to today together tonight too top total tough toward town
trade training travel treat treatment tree trial trip trouble true truth try turn two type under understand unit
until up upon us use usually value various very victim view visit voice vote wait walk wall want war watch water way
we weapon wear week weight well west what when where which while white who whole why wide wife will win wind window
wish with within without woman wonder word work world worry would write wrong yard year yes yet you young
"""

WORDS = tuple(_TEXT.split())
